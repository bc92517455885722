#include "apps/video/frame_size.h"

#include <fmt/format.h>

#include <charconv>

#include "base/errors.h"
#include "base/printable.h"

namespace tandem {

std::string FrameSize::text() const {
  return height == width ? fmt::format("{}", height) : fmt::format("{}x{}", height, width);
}

FrameSize read_frame_size(const std::string& text) {
  constexpr int32_t kMostSide = 8192;
  FrameSize size;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, size.height);
  bool good = error == std::errc();
  size.width = size.height;
  if (good && end != last) {
    const auto [after, wrong] = std::from_chars(end + 1, last, size.width);
    good = *end == 'x' && wrong == std::errc() && after == last;
  }
  if (good && size.height >= 1 && size.width >= 1 && size.height <= kMostSide && size.width <= kMostSide) return size;
  throw ConfigError(fmt::format("--size {} is no size", printable(text)),
                    fmt::format("it is one side for both, or height x width, 1 to {}", kMostSide),
                    "write --size 256, or --size 192x256");
}

}  // namespace tandem
