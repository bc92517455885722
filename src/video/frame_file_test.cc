#include "video/frame_file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/temp_dir.h"
#include "video/damaged_frames.h"
#include "video/frames_of_video.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

std::vector<uint8_t> some_frames(int64_t count, int64_t frame_bytes) {
  std::vector<uint8_t> frames(static_cast<size_t>(count * frame_bytes));
  for (size_t i = 0; i < frames.size(); ++i) frames[i] = static_cast<uint8_t>(i * 7 + i / 255);
  return frames;
}

// 900 frames of 100 x 70: two blocks of sums.
fs::path write_frames(const fs::path& dir, const std::string& name = "a.mp4") {
  const fs::path file = frame_file_path(dir, name, 100, 70);
  FrameFileWriter writer(file, 100, 70);
  const std::vector<uint8_t> frames = some_frames(900, 7000);
  for (size_t at = 0; at < frames.size(); at += 7000 * 9) writer.add(std::span(frames).subspan(at, 7000 * 9));
  writer.finish({.name = name, .scaling = "none", .height = 100, .width = 70, .frames_per_second = 29.97});
  return file;
}

void flip_byte(const fs::path& file, int64_t at) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(at);
  const char byte = static_cast<char>(stream.get() ^ 0x10);
  stream.seekp(at);
  stream.put(byte);
}

std::string why_damaged(const fs::path& file) {
  try {
    FrameFile::open(file).verify();
    return "";
  } catch (const DamagedFrames& damage) {
    return damage.why();
  }
}

TEST(FrameFile, FramesComeBackAsTheyWereWritten) {
  const TempDir dir;
  const FrameFile frames = FrameFile::open(write_frames(dir.path()));
  frames.verify();
  EXPECT_EQ(frames.frames(), 900);
  EXPECT_EQ(frames.source().name, "a.mp4");
  EXPECT_EQ(frames.source().frames_per_second, 29.97);
  EXPECT_EQ(frames.source().frames_sha256.size(), 64U);
  const std::vector<uint8_t> expected = some_frames(900, 7000);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), frames.frame(0)));
}

TEST(FrameFile, EveryFlippedByteIsFound) {
  const TempDir dir;
  const fs::path file = write_frames(dir.path());
  const auto size = static_cast<int64_t>(fs::file_size(file));
  EXPECT_EQ(why_damaged(file), "");
  for (const int64_t at : {int64_t{0}, int64_t{14}, int64_t{20}, int64_t{100}, int64_t{200}, int64_t{4096},
                           int64_t{4096 + 7000 * 599}, int64_t{4096 + 7000 * 600}, size - 1}) {
    flip_byte(file, at);
    EXPECT_NE(why_damaged(file), "") << at;
    flip_byte(file, at);
  }
  flip_byte(file, 4096 + 7000 * 700);
  EXPECT_EQ(why_damaged(file), "frames 599 to 899 are damaged");
}

TEST(FrameFile, ACutFileIsRefused) {
  const TempDir dir;
  const fs::path file = write_frames(dir.path());
  for (const uintmax_t bytes :
       {fs::file_size(file) - 1, fs::file_size(file) / 2, uintmax_t{4096}, uintmax_t{10}, uintmax_t{0}}) {
    fs::resize_file(file, bytes);
    EXPECT_NE(why_damaged(file).find("cut"), std::string::npos) << bytes;
  }
}

TEST(FrameFile, AFileThatWasNotFinishedLeavesNothing) {
  const TempDir dir;
  {
    FrameFileWriter writer(dir / "a.frames", 4, 4);
    writer.add(some_frames(3, 16));
  }
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(FrameFile, FramesThatWereRenamedAreRefusedByName) {
  const TempDir dir;
  const fs::path other = frame_file_path(dir.path(), "b.mp4", 100, 70);
  fs::rename(write_frames(dir.path()), other);
  try {
    refuse_other_video(FrameFile::open(other), "b.mp4");
    FAIL() << "it was taken";
  } catch (const DamagedFrames& error) {
    EXPECT_NE(std::string(error.what()).find("holds the frames of a.mp4"), std::string::npos) << error.what();
  }
}

// A video, and frames that say that they were made from it.
struct MadeFrames {
  TempDir dir;
  fs::path video = dir / "a.mp4";
  fs::path frames = frame_file_path(dir / "frames", "a.mp4", 4, 4);

  explicit MadeFrames(const std::string& content = "twelve bytes") {
    std::ofstream(video) << content;
    const FileStamp stamp = stamp_of_file(video);
    FrameFileWriter writer(frames, 4, 4);
    writer.add(some_frames(3, 16));
    writer.finish({.name = "a.mp4",
                   .path = path_of_source(video),
                   .bytes = stamp.bytes,
                   .time_ns = stamp.time_ns,
                   .sha256 = sha256_of_file(video)});
  }
  void write_later(const std::string& content, int hours) const {
    std::ofstream(video) << content;
    fs::last_write_time(video, fs::file_time_type::clock::now() + std::chrono::hours(hours));
  }
  bool known() const { return is_known_as_of(FrameFile::open(frames), video); }
  bool same() const { return is_of_this_video(FrameFile::open(frames), video); }
};

TEST(FramesOfVideo, AVideoThatWasTouchedIsReadOnceAndKnownThen) {
  const MadeFrames made;
  EXPECT_TRUE(made.known());
  made.write_later("twelve bytes", 1);
  EXPECT_FALSE(made.known());
  EXPECT_TRUE(made.same());
  EXPECT_TRUE(made.known()) << "it was noted";
  made.write_later("twelve BYTES", 2);
  EXPECT_FALSE(made.known());
  EXPECT_FALSE(made.same());
}

TEST(FramesOfVideo, FramesOfAFileOfThisNameInAnotherFolderAreRefused) {
  const MadeFrames made;
  const TempDir elsewhere;
  std::ofstream(elsewhere / "a.mp4") << "another video";
  try {
    refuse_video_of_elsewhere(FrameFile::open(made.frames), elsewhere / "a.mp4");
    FAIL() << "they were taken";
  } catch (const DamagedFrames& error) {
    EXPECT_NE(error.why().find("another video of the same name"), std::string::npos) << error.why();
  }
  EXPECT_NO_THROW(refuse_video_of_elsewhere(FrameFile::open(made.frames), made.video));
  fs::remove(made.video);  // it was moved there, perhaps: what is new is decoded
  EXPECT_NO_THROW(refuse_video_of_elsewhere(FrameFile::open(made.frames), elsewhere / "a.mp4"));
}

TEST(FramesOfVideo, FramesOfTwoVideosOfOneNameAreRefusedWhereNeitherVideoIsThere) {
  const TempDir dir;
  const VideoFiles files{.name = "a", .frames = {write_frames(dir.path(), "a.avi"), write_frames(dir.path(), "a.mp4")}};
  EXPECT_THROW(open_frames_of(files, dir.path(), 100, 70), DamagedFrames);
  EXPECT_FALSE(open_frames_of(files, dir.path(), 10, 10));
  const VideoFiles one{.name = "a", .frames = {files.frames[1]}};
  EXPECT_EQ(open_frames_of(one, dir.path(), 100, 70)->source().name, "a.mp4");
}

TEST(FrameFile, ALinkInItsPlaceIsNotFollowed) {
  const TempDir dir;
  const fs::path file = write_frames(dir.path());
  fs::create_symlink(file, dir / "link.frames");
  EXPECT_EQ(why_damaged(dir / "link.frames"), "it is a link, which is not followed");
}

}  // namespace
}  // namespace tandem
