// telemetry/png.h -- small pictures of few colours as PNG: 8 bits a pixel, with a palette.
//
// The deflate stream has fixed Huffman codes and runs alone, after each row was subtracted from the one above: enough
// for flat areas, and 100 lines in place of a library.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace tandem {

using PngColor = std::array<uint8_t, 3>;

// `pixels`: numbers of colours, row by row.
std::string make_png(int width, int height, std::span<const uint8_t> pixels, std::span<const PngColor> palette);

}  // namespace tandem
