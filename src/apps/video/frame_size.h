// apps/video/frame_size.h -- "256" or "192x256", height first, as a command line gives it.
#pragma once

#include <cstdint>
#include <string>

namespace tandem {

struct FrameSize {
  int32_t height = 256, width = 256;
  std::string text() const;  // as it is given
};
FrameSize read_frame_size(const std::string& text);  // throws ConfigError

}  // namespace tandem
