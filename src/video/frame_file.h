// video/frame_file.h -- the frames of one video, decoded once: gray, one byte a pixel, mapped into memory.
//
//   [ header, 4096 bytes | frames x height x width bytes, padded to 4096 | one XXH3 sum for each block of frames ]
// The header is a line of JSON with its own sum: version, the video's name, size, time and SHA-256, frames, height,
// width, how it was scaled. Sums find damage, not malice. A file appears whole or not at all (FrameFileWriter).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"

namespace tandem {

// What a frame file says of the video that it was made from.
struct VideoSource {
  std::string name;               // "mouse_3.mp4"
  std::string path;               // where it was; empty: not known
  int64_t bytes = 0;              // of the file
  int64_t time_ns = 0;            // of its last change
  std::string sha256;             // of its content; empty: these frames never were a video
  std::string frames_sha256;      // of the frames, set by FrameFileWriter
  std::string scaling;            // "area"; "none": frames of this size
  int32_t height = 0, width = 0;  // of the video itself
  double frames_per_second = 0;   // 0: not known
  bool variable_rate = false;
  int32_t rotation = 0;  // VideoFacts::rotation
  bool generated = false;
  std::string note;  // what to know of these frames: "ends early: 300 of 360 frames"
};

class FrameFile {
 public:
  static constexpr const char* kEnding = ".frames";
  static constexpr int64_t kBlockBytes = int64_t{4} << 20;  // about what one sum covers, in whole frames

  // Reads the header alone and maps the file. Throws DamagedFrames where it is no frame file, is of another version,
  // cut or has a damaged header; IoError where it can't be read.
  static FrameFile open(const std::filesystem::path& file);
  FrameFile(FrameFile&& other) noexcept;
  FrameFile& operator=(FrameFile&& other) noexcept;
  ~FrameFile();

  const VideoSource& source() const { return source_; }
  int64_t frames() const { return frames_; }
  int32_t height() const { return height_; }
  int32_t width() const { return width_; }
  int64_t frame_bytes() const { return int64_t{height_} * width_; }
  const uint8_t* frame(int64_t index) const { return pixels_ + index * frame_bytes(); }  // the next ones follow it
  const std::filesystem::path& path() const { return path_; }

  // Reads every byte and compares the sums. Throws DamagedFrames that names the first bad block's frames.
  void verify() const;

 private:
  FrameFile() = default;
  std::filesystem::path path_;
  VideoSource source_;
  int64_t frames_ = 0, block_frames_ = 1;
  int32_t height_ = 0, width_ = 0;
  const uint8_t* pixels_ = nullptr;
  void* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
  std::span<const uint64_t> sums_;
};

// Frames one after the other into a file beside the final place, which finish() renames. Without finish() nothing is
// left. Throws IoError.
class FrameFileWriter {
 public:
  FrameFileWriter(const std::filesystem::path& file, int32_t height, int32_t width,
                  FileSystem& fs = FileSystem::real());
  ~FrameFileWriter();
  FrameFileWriter(const FrameFileWriter&) = delete;
  FrameFileWriter& operator=(const FrameFileWriter&) = delete;

  void add(std::span<const uint8_t> frames);  // whole frames, one or more
  int64_t frames() const;
  void finish(VideoSource source);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem
