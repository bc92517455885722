#include "video/frames_of_video.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/file_system.h"
#include "base/printable.h"
#include "base/sha256.h"
#include "video/damaged_frames.h"

namespace tandem {

namespace fs = std::filesystem;

FileStamp stamp_of_file(const fs::path& file) {
  struct stat info {};
  if (lstat(file.c_str(), &info) != 0)
    throw IoError(fmt::format("cannot look at {}", printable(file.string())), errno, "check the path");
  return {info.st_size, int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

std::string sha256_of_file(const fs::path& file) {
  FileSystem& files = FileSystem::real();
  const OpenFile open(files, files.open_read(file));
  Sha256 sum;
  std::vector<std::byte> buffer(1 << 20);
  while (const size_t got = files.read(open.handle(), buffer)) sum.update(std::span(buffer).first(got));
  return sum.hex();
}

bool is_of_this_video(const VideoSource& source, const fs::path& video) {
  const FileStamp now = stamp_of_file(video);
  if (now.bytes != source.bytes) return false;
  return now.time_ns == source.time_ns || sha256_of_file(video) == source.sha256;
}

void refuse_other_video(const FrameFile& frames, const std::string& video_file) {
  if (frames.source().name == video_file) return;
  throw DamagedFrames(
      fmt::format("{} holds the frames of {}", printable(frames.path().string()), printable(frames.source().name)),
      fmt::format("it stands where those of {} belong; it was renamed or copied", printable(video_file)),
      "take it away, and `tandem data prepare video DIR` makes the right one");
}

std::optional<FrameFile> open_frames_of(const VideoFiles& files, const fs::path& cache, int32_t height, int32_t width) {
  if (!files.video.empty()) {
    const std::string name = files.video.filename().string();
    const fs::path path = frame_file_path(cache, name, height, width);
    if (!FileSystem::real().exists(path)) return std::nullopt;
    FrameFile frames = FrameFile::open(path);
    refuse_other_video(frames, name);
    if (!is_of_this_video(frames.source(), files.video))
      throw DamagedFrames(fmt::format("{} has changed since its frames were made", printable(files.video.string())),
                          "they would show another video", "run `tandem data prepare video DIR` again");
    return frames;
  }
  const std::string ending = fmt::format(".{}x{}{}", height, width, FrameFile::kEnding);
  for (const fs::path& path : files.frames) {
    const std::string file = path.filename().string();
    if (!file.ends_with(ending)) continue;
    FrameFile frames = FrameFile::open(path);
    refuse_other_video(frames, file.substr(0, file.size() - ending.size()));
    return frames;
  }
  return std::nullopt;
}

}  // namespace tandem
