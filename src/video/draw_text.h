// video/draw_text.h -- a label in the corner of a gray frame: capitals, digits and a few signs of 5 x 7 pixels.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tandem {

// Upper left corner, white on a black field, larger on larger frames; '\n' begins a new line. What does not fit is cut,
// a character that it has no picture of is a '?'. Small letters are drawn as capitals.
void draw_label(std::span<uint8_t> frame, int32_t height, int32_t width, std::string_view text);

}  // namespace tandem
