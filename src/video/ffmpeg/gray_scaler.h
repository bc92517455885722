// video/ffmpeg/gray_scaler.h -- a decoded frame as gray bytes of one size.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "video/ffmpeg/av_common.h"

namespace tandem {

class GrayScaler {
 public:
  GrayScaler(int32_t height, int32_t width);
  // Valid until the next call. Frames may change their size and format in the middle of a video. Throws Error.
  std::span<const uint8_t> gray(const AVFrame& frame);
  std::span<const uint8_t> last() const { return pixels_; }  // what it gave

 private:
  void prepare(const AVFrame& frame);
  int32_t height_, width_;
  std::vector<uint8_t> pixels_, row_padded_;
  AvPointer<SwsContext> scaler_;
  int source_width_ = 0, source_height_ = 0, source_format_ = -1, source_range_ = -1;
};

}  // namespace tandem
