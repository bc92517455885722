#include "video/video_program.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/errors.h"
#include "base/temp_dir.h"
#include "video/generated_videos.h"
#include "video/prepare.h"
#include "video/video_set.h"

// With the real tandem-video, which is built beside these tests.
namespace tandem {
namespace {

namespace fs = std::filesystem;

const VideoProgram& program() {
  static const VideoProgram found(fs::path(TANDEM_VIDEO));
  return found;
}

std::vector<uint8_t> ramp(int32_t height, int32_t width, int frame) {
  std::vector<uint8_t> pixels(static_cast<size_t>(height) * static_cast<size_t>(width));
  for (size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<uint8_t>(60 + (i + static_cast<size_t>(frame) * 3) % 100);
  return pixels;
}

fs::path write_ramps(const fs::path& file, int32_t height, int32_t width, int frames, bool lossless) {
  VideoWriter writer(program(), file, height, width, 25, lossless);
  for (int frame = 0; frame < frames; ++frame) writer.add(ramp(height, width, frame));
  writer.finish();
  return file;
}

TEST(VideoProgram, FramesWithoutLossComeBackToTheBitAlsoOfOddSizes) {
  const TempDir dir;
  const fs::path file = write_ramps(dir / "a.mp4", 33, 45, 20, true);
  const VideoFacts facts = program().probe(file);
  EXPECT_EQ(facts.height, 33);
  EXPECT_EQ(facts.width, 45);
  EXPECT_EQ(facts.frames, 20);
  EXPECT_EQ(facts.frames_per_second, 25);
  int frame = 0;
  const DecodedVideo done = program().decode(file, 0, 0, [&](std::span<const uint8_t> pixels) {
    EXPECT_TRUE(std::ranges::equal(pixels, ramp(33, 45, frame++)));
    return true;
  });
  EXPECT_EQ(done.frames, 20);
  EXPECT_EQ(done.trouble, "");
}

TEST(VideoProgram, DecodingStopsWhenNoMoreIsWanted) {
  const TempDir dir;
  const fs::path file = write_ramps(dir / "a.mp4", 64, 64, 200, true);
  int frames = 0;
  EXPECT_EQ(program().decode(file, 0, 0, [&](std::span<const uint8_t>) { return ++frames < 3; }).frames, 3);
}

TEST(VideoProgram, ALabelIsDrawnInTheCornerAndTheRestStaysAlike) {
  const TempDir dir;
  const fs::path file = write_ramps(dir / "a.mp4", 96, 128, 12, true);
  EXPECT_EQ(overlay_video(program(), file, dir / "b.mp4", [](int64_t frame) { return frame < 6 ? "walk 97%" : ""; }),
            12);
  std::vector<int> dark;
  double change = 0;
  const DecodedVideo done = program().decode(dir / "b.mp4", 0, 0, [&](std::span<const uint8_t> pixels) {
    const std::vector<uint8_t> before = ramp(96, 128, static_cast<int>(dark.size()));
    dark.push_back(
        static_cast<int>(std::count_if(pixels.begin(), pixels.begin() + 9 * 128, [](uint8_t p) { return p < 30; })));
    for (size_t i = 20 * 128; i < pixels.size(); ++i) change += std::abs(int{pixels[i]} - int{before[i]});
    return true;
  });
  ASSERT_EQ(done.frames, 12);
  EXPECT_GT(dark[2], 100);
  EXPECT_EQ(dark[9], 0);
  EXPECT_LT(change / (12 * 76 * 128), 10);
}

TEST(VideoProgram, AFileThatIsNoVideoIsRefusedWithItsReason) {
  const TempDir dir;
  std::ofstream(dir / "a.mp4") << "no video";
  std::ofstream(dir / "b.mp4");
  EXPECT_THROW(program().probe(dir / "a.mp4"), ConfigError);
  try {
    program().probe(dir / "b.mp4");
    FAIL() << "an empty file was taken";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.why(), "the file is empty");
  }
  EXPECT_THROW(VideoProgram("/nowhere/tandem-video").probe(dir / "a.mp4"), IoError);
}

TEST(VideoProgram, AVideoThatCannotBeWrittenLeavesNothing) {
  const TempDir dir;
  EXPECT_THROW(write_ramps(dir / "none" / "a.mp4", 32, 32, 500, true), Error);
  { VideoWriter abandoned(program(), dir / "b.mp4", 32, 32, 25, true); }
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(GeneratedVideos, RealVideosAndFramesAloneAreOneSet) {
  const TempDir dir;
  const GeneratedVideoOptions options{.videos = 2, .trials = 2, .frames = 50, .size = 32};
  make_generated_set(options, dir / "videos", &program());
  make_generated_set(options, dir / "frames", nullptr);
  const PrepareResult result = prepare_videos({.folder = dir / "videos", .height = 32, .width = 32}, &program());
  EXPECT_EQ(result.decoded, 2) << result.findings.render();
  const auto load = [&](const char* name) { return load_video_set({.folder = dir / name, .height = 32, .width = 32}); };
  EXPECT_EQ(load("videos").digest(), load("frames").digest());
  EXPECT_TRUE(load("videos").generated());
  EXPECT_TRUE(frames_are_ready({.folder = dir / "videos", .height = 32, .width = 32}));
  EXPECT_FALSE(frames_are_ready({.folder = dir / "videos", .height = 16, .width = 16}));
}

}  // namespace
}  // namespace tandem
