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

namespace {

constexpr uint64_t kMostSeenBytes = 4096;
constexpr size_t kLongestSourcePath = 1024;  // it stands in the header of the frames

fs::path seen_file(const FrameFile& frames) { return frames.path().string() + ".seen"; }
std::string seen_text(const FileStamp& stamp, const VideoSource& source) {
  return fmt::format("tandem-seen 1 {} {} {}\n", stamp.bytes, stamp.time_ns, source.sha256);
}

bool lies_below(const fs::path& file, const fs::path& folder) {
  const fs::path from_there = fs::weakly_canonical(file).lexically_relative(fs::weakly_canonical(folder));
  return !from_there.empty() && *from_there.begin() != "..";
}

}  // namespace

std::string rotation_words(int32_t degrees) {
  return fmt::format(
      "players turn it clockwise by {} degrees, its frames are as they are stored: turn all videos of one camera "
      "alike, by `ffmpeg -i FILE TURNED`",
      degrees);
}

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

bool is_known_as_of(const FrameFile& frames, const fs::path& video) {
  const FileStamp now = stamp_of_file(video);
  const VideoSource& source = frames.source();
  if (now == FileStamp{source.bytes, source.time_ns}) return true;
  FileSystem& files = FileSystem::real();
  const fs::path seen = seen_file(frames);
  if (now.bytes != source.bytes || !files.exists(seen)) return false;
  return read_whole_file(files, seen, kMostSeenBytes).text() == seen_text(now, source);
}

bool is_of_this_video(const FrameFile& frames, const fs::path& video) {
  if (is_known_as_of(frames, video)) return true;
  const FileStamp now = stamp_of_file(video);
  if (now.bytes != frames.source().bytes || sha256_of_file(video) != frames.source().sha256) return false;
  try {
    if (stamp_of_file(video) == now)
      replace_file(FileSystem::real(), seen_file(frames), seen_text(now, frames.source()));
  } catch (const IoError&) {  // a folder that can't be written: it is read again next time
  }
  return true;
}

void refuse_video_of_elsewhere(const FrameFile& frames, const fs::path& video) {
  const VideoSource& source = frames.source();
  const fs::path other = source.path;
  if (other.empty() || other == path_of_source(video) || !FileSystem::real().exists(other)) return;
  if (stamp_of_file(other) != FileStamp{source.bytes, source.time_ns}) return;
  // A folder that was copied with its frames: they are its own now.
  const fs::path folder = frames.path().parent_path().parent_path();
  if (lies_below(video, folder) && !lies_below(other, folder)) return;
  throw DamagedFrames(
      fmt::format("{} holds the frames of {}", printable(frames.path().string()), printable(source.path)),
      fmt::format("{} is another video of the same name", printable(video.string())),
      "give the videos of each folder a folder of frames of their own: --output, and `cache` of the training");
}

std::string path_of_source(const fs::path& video) {
  std::string path = fs::absolute(video).lexically_normal().string();
  return path.size() <= kLongestSourcePath ? path : "";
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
    if (!is_of_this_video(frames, files.video)) {
      refuse_video_of_elsewhere(frames, files.video);
      throw DamagedFrames(fmt::format("{} has changed since its frames were made", printable(files.video.string())),
                          "they would show another video", "run `tandem data prepare video DIR` again");
    }
    return frames;
  }
  const std::string ending = fmt::format(".{}x{}{}", height, width, FrameFile::kEnding);
  std::optional<FrameFile> found;
  for (const fs::path& path : files.frames) {
    const std::string file = path.filename().string();
    if (!file.ends_with(ending)) continue;
    if (found)
      throw DamagedFrames(fmt::format("{} and {} are frames of two videos of one name",
                                      printable(found->path().filename().string()), printable(file)),
                          "neither video is here, so annotations could be of either",
                          "take away the frames that they are not of");
    found = FrameFile::open(path);
    refuse_other_video(*found, file.substr(0, file.size() - ending.size()));
  }
  return found;
}

}  // namespace tandem
