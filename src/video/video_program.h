// video/video_program.h -- `tandem-video`, the one program that links FFmpeg, as the others use it.
//
// Videos may come from anybody, so they are read in a process of their own: memory and time have limits, it opens no
// file but the one it was given and knows no network. It stands beside the program that asks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tandem {

struct VideoFacts {
  int32_t height = 0, width = 0;
  int64_t frames = 0;  // as the file says; 0: it does not
  double frames_per_second = 0;
  bool variable_rate = false;
  int32_t rotation = 0;  // degrees, clockwise, that a player is asked to turn it by; its frames come as they are stored
  std::string codec;     // "h264"
};

struct DecodedVideo {
  VideoFacts facts;
  int64_t frames = 0;   // that came
  std::string trouble;  // what ended it early, or was damaged; empty: all frames came whole
};

class VideoProgram {
 public:
  // Beside the running program; TANDEM_VIDEO_PROGRAM names another. Nothing: this build has none (TANDEM_FFMPEG=off).
  static std::optional<VideoProgram> find();
  explicit VideoProgram(std::filesystem::path program) : program_(std::move(program)) {}

  // Throws ConfigError where the file is no video: empty, cut before its index, no stream of pictures.
  VideoFacts probe(const std::filesystem::path& video) const;

  // Every frame of the first video stream in the order of display, each once, whatever its time stamp says, gray and
  // scaled to height x width (0 x 0: as it is) as `ffmpeg -vf scale=W:H:flags=area+accurate_rnd+bitexact -pix_fmt gray`
  // does; one after the other to `take`, which returns false to stop. Throws ConfigError as probe().
  DecodedVideo decode(const std::filesystem::path& video, int32_t height, int32_t width,
                      const std::function<bool(std::span<const uint8_t> frame)>& take) const;

  const std::filesystem::path& path() const { return program_; }

 private:
  std::filesystem::path program_;
};

// Gray frames into an mp4 (H.264). `lossless`: they come back to the bit. The file appears whole, by finish(), or not
// at all. A frame of odd size loses its last row or column, which H.264 can't hold, unless it is lossless.
class VideoWriter {
 public:
  VideoWriter(const VideoProgram& program, const std::filesystem::path& file, int32_t height, int32_t width,
              double frames_per_second, bool lossless);
  ~VideoWriter();
  VideoWriter(const VideoWriter&) = delete;
  VideoWriter& operator=(const VideoWriter&) = delete;
  void add(std::span<const uint8_t> frame);
  void finish();  // throws Error with what the encoder said

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Copies a video with a text drawn on each frame: text(frame number), a line or two, empty: none. Gray, at the video's
// own size. Returns the frames written.
int64_t overlay_video(const VideoProgram& program, const std::filesystem::path& from, const std::filesystem::path& to,
                      const std::function<std::string(int64_t frame)>& text);

}  // namespace tandem
