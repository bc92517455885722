#include "video/ffmpeg/gray_scaler.h"

#include <fmt/format.h>

#include <cstring>

#include "base/errors.h"

namespace tandem {
namespace {

constexpr int kLineStep = 64;  // swscale writes whole vectors: lines of its own, as wide as it likes

int padded_line(int32_t width) { return (width + 2 * kLineStep - 1) / kLineStep * kLineStep; }

}  // namespace

GrayScaler::GrayScaler(int32_t height, int32_t width)
    : height_(height),
      width_(width),
      pixels_(static_cast<size_t>(height) * static_cast<size_t>(width)),
      row_padded_(static_cast<size_t>(height) * static_cast<size_t>(padded_line(width)) + kLineStep) {}

// What FFmpeg's scale filter sets, so that the bytes are the same: the frame's own range where it tells one, else that
// of its pixel format; gray is full range.
void GrayScaler::prepare(const AVFrame& frame) {
  if (scaler_ && frame.width == source_width_ && frame.height == source_height_ && frame.format == source_format_ &&
      frame.color_range == source_range_)
    return;
  scaler_.reset(sws_alloc_context());
  SwsContext* const to = scaler_.get();
  const auto set = [&](const char* name, int64_t value) { av_opt_set_int(to, name, value, 0); };
  set("srcw", frame.width);
  set("srch", frame.height);
  set("src_format", frame.format);
  set("dstw", width_);
  set("dsth", height_);
  set("dst_format", AV_PIX_FMT_GRAY8);
  set("sws_flags", SWS_AREA | SWS_ACCURATE_RND | SWS_BITEXACT);
  set("threads", 1);
  if (const int made = sws_init_context(to, nullptr, nullptr); made < 0)
    throw Error(ExitCode::kFailed, "a frame can't be scaled", av_words(made), "encode the video again");
  int *from_table = nullptr, *to_table = nullptr, from_full = 0, to_full = 0, brightness = 0, contrast = 0,
      saturation = 0;
  if (frame.color_range != AVCOL_RANGE_UNSPECIFIED &&
      sws_getColorspaceDetails(to, &from_table, &from_full, &to_table, &to_full, &brightness, &contrast, &saturation) >=
          0)
    sws_setColorspaceDetails(to, from_table, frame.color_range == AVCOL_RANGE_JPEG, to_table, to_full, brightness,
                             contrast, saturation);
  source_width_ = frame.width, source_height_ = frame.height;
  source_format_ = frame.format, source_range_ = frame.color_range;
}

std::span<const uint8_t> GrayScaler::gray(const AVFrame& frame) {
  const size_t line = static_cast<size_t>(width_);
  const bool as_it_is = frame.format == AV_PIX_FMT_GRAY8 && frame.width == width_ && frame.height == height_;
  const uint8_t* rows = frame.data[0];
  ptrdiff_t step = frame.linesize[0];
  if (!as_it_is) {
    prepare(frame);
    uint8_t* const out[4] = {row_padded_.data(), nullptr, nullptr, nullptr};
    const int steps[4] = {padded_line(width_), 0, 0, 0};
    if (sws_scale(scaler_.get(), frame.data, frame.linesize, 0, frame.height, out, steps) != height_)
      throw Error(ExitCode::kFailed, "a frame can't be scaled", "swscale gave fewer lines", "encode the video again");
    rows = row_padded_.data();
    step = steps[0];
  }
  for (int32_t y = 0; y < height_; ++y)
    std::memcpy(pixels_.data() + static_cast<size_t>(y) * line, rows + y * step, line);
  return pixels_;
}

}  // namespace tandem
