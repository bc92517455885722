// video/ffmpeg/decoder.h -- the frames of one video file by FFmpeg's libraries, gray and scaled.
//
// Every frame of the first video stream comes once, in the order of display, whatever its time stamp says: nothing is
// repeated or dropped to keep a rate. A frame that damage has lost keeps its place (lost_frames.h), so that those
// behind it keep theirs. Scaling is swscale's area averaging with accurate rounding, on one thread, set up as FFmpeg's
// scale filter does it, so that the bytes are those of
//   ffmpeg -noautorotate -i FILE -vsync passthrough -vf scale=W:H:flags=area+accurate_rnd+bitexact -pix_fmt gray
//     -f rawvideo -
// A rotation that the file asks a player for is reported and not followed. The file is read through a callback: FFmpeg
// opens nothing, so a playlist inside a video leads nowhere.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "video/video_program.h"

namespace tandem {

class FfmpegDecoder {
 public:
  explicit FfmpegDecoder(const std::string& file);  // throws ConfigError
  ~FfmpegDecoder();
  FfmpegDecoder(const FfmpegDecoder&) = delete;
  FfmpegDecoder& operator=(const FfmpegDecoder&) = delete;

  const VideoFacts& facts() const;
  // 0 x 0: the size of the video. False from `take` ends it. Once.
  DecodedVideo decode(int32_t height, int32_t width, const std::function<bool(std::span<const uint8_t>)>& take);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem
