// video/ffmpeg/encoder.h -- gray frames into an mp4 file by FFmpeg's libraries.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tandem {

struct EncoderOptions {
  int32_t height = 0, width = 0;
  double frames_per_second = 30;
  bool lossless = false;  // the gray itself, full range; else for players: 4:2:0, even size
};

class FfmpegEncoder {
 public:
  // H.264 by libx264; where this FFmpeg has none, MPEG-4 for players and FFV1 without loss. Throws Error.
  FfmpegEncoder(const std::string& file, const EncoderOptions& options);
  ~FfmpegEncoder();
  FfmpegEncoder(const FfmpegEncoder&) = delete;
  FfmpegEncoder& operator=(const FfmpegEncoder&) = delete;
  void add(std::span<const uint8_t> frame);  // height x width bytes
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem
