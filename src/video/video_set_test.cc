#include "video/video_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "base/errors.h"
#include "base/temp_dir.h"
#include "video/annotations.h"
#include "video/class_counts.h"
#include "video/clip_set.h"
#include "video/frame_file.h"
#include "video/generated_videos.h"
#include "video/split.h"
#include "video/video_folder.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr GeneratedVideoOptions kSmall{.videos = 4, .trials = 2, .frames = 60, .size = 32};

// Frames alone: these tests need no FFmpeg.
struct SmallSet {
  TempDir dir;
  fs::path folder = dir / "set";
  SmallSet() { make_generated_set(kSmall, folder, nullptr); }
  VideoSetOptions options() const { return {.folder = folder, .height = 32, .width = 32}; }
  VideoSet load() const { return load_video_set(options()); }
  fs::path annotation(const std::string& name) const { return folder / "Annotations" / name; }
  void append(const std::string& name, const std::string& text) const {
    std::ofstream(annotation(name), std::ios::app) << text;
  }
  std::string refusal() const {
    try {
      load();
      return "";
    } catch (const ConfigError& error) {
      return std::string(error.what()) + "\n" + error.why() + "\n" + error.todo();
    }
  }
};

TEST(VideoSet, TrialsLieEndToEndInTheirVideo) {
  const SmallSet small;
  const VideoSet set = small.load();
  EXPECT_EQ(set.frames(), 480);
  ASSERT_EQ(set.trials().size(), 8U);
  EXPECT_EQ(set.videos()[1].name, "m01_b");
  EXPECT_EQ(set.videos()[1].animal, "m01");
  EXPECT_EQ(set.trials()[3].first_frame, 180);
  EXPECT_TRUE(set.generated());
  EXPECT_EQ(set.frame(180), set.videos()[1].frames.frame(60));
  EXPECT_EQ(set.findings().render(), "");
}

TEST(VideoSet, ClipsStayInsideATrialAndHaveTheLabelOfTheirCentre) {
  const SmallSet small;
  const VideoSet set = small.load();
  const int32_t trials[] = {1, 2};
  const std::vector<Clip> clips = clips_of(set, trials);
  EXPECT_EQ(clips.size(), 2U * (60 - 16));
  EXPECT_EQ(clips.front().first_frame, 60);
  EXPECT_EQ(clips[44].first_frame, 120);
  for (const Clip& clip : clips) {
    const VideoTrial& trial = set.trials()[static_cast<size_t>(clip.trial)];
    EXPECT_LE(clip.first_frame + 17, trial.first_frame + trial.frames());
    EXPECT_EQ(clip.label, trial.classes[static_cast<size_t>(clip.first_frame - trial.first_frame + 8)]);
  }
}

TEST(VideoSet, EqualFilesGiveAnEqualDigestAndOthersAnother) {
  const SmallSet a, b;
  EXPECT_EQ(a.load().digest(), b.load().digest());
  std::string text;
  {
    std::ifstream in(b.annotation("prediction_m02_a_1.csv"));
    text.assign(std::istreambuf_iterator<char>(in), {});
  }
  text.replace(text.find("\n0,") + 3, 1, text[text.find("\n0,") + 3] == '1' ? "2" : "1");
  std::ofstream(b.annotation("prediction_m02_a_1.csv")) << text;
  EXPECT_NE(a.load().digest(), b.load().digest());
}

TEST(VideoSet, AnimalsAreThoseOfAnimalsCsvWhereItIsThere) {
  const SmallSet small;
  const std::string by_names = small.load().digest();
  std::ofstream(small.folder / "animals.csv") << "video,animal\nm01_a,x\nm01_b,y\nm02_a,x\n";
  EXPECT_NE(small.refusal().find("animals.csv: it has no row for m02_b"), std::string::npos) << small.refusal();
  std::ofstream(small.folder / "animals.csv", std::ios::app) << "m02_b,z\nanother,z\n";
  const VideoSet set = small.load();
  EXPECT_EQ(set.videos()[0].animal, "x");
  EXPECT_EQ(set.videos()[2].animal, "x");
  EXPECT_EQ(set.videos()[3].animal, "z");
  EXPECT_EQ(set.digest(), by_names) << "a run by video or trial goes on whatever stands there";
  EXPECT_EQ(set.findings().render(), "");
  std::ofstream(small.folder / "animals.csv", std::ios::app) << "m01_a,y\nm02_c,\n";
  EXPECT_NE(small.refusal().find("\"m01_a\" stands there twice"), std::string::npos) << small.refusal();
}

TEST(VideoSet, AnimalsCsvOfAnotherKindIsAWarning) {
  const SmallSet small;
  std::ofstream(small.folder / "animals.csv") << "id,weight\n7,23.5\n";
  const VideoSet set = small.load();
  EXPECT_EQ(set.videos()[0].animal, "m01");
  ASSERT_EQ(set.findings().warnings(), 1);
  EXPECT_NE(set.findings().render().find("animals.csv: unknown: it has no columns video and animal: left out"),
            std::string::npos)
      << set.findings().render();
}

TEST(VideoSet, TrialsShorterThanAClipAreNamed) {
  const SmallSet small;
  EXPECT_EQ(short_trials_text(small.load()), "");
  std::string text = "Frame,Action\n";
  for (int frame = 0; frame < 10; ++frame) text += std::to_string(frame) + ",1\n";
  std::ofstream(small.annotation("prediction_m01_a_2.csv")) << text;
  EXPECT_EQ(short_trials_text(small.load()),
            "1 of 8 trials is shorter than a clip of 17 frames and has none (Annotations/prediction_m01_a_2.csv: 10 "
            "frames)");
  EXPECT_EQ(short_trials_text(small.load(), {.length = 9}), "");
}

TEST(VideoSet, RowsBeyondTheEndAreLeftOutAndNamed) {
  const SmallSet small;
  small.append("prediction_m01_a_2.csv", "60,1\n61,1\n");
  const VideoSet set = small.load();
  EXPECT_EQ(set.trials()[1].frames(), 60);
  ASSERT_EQ(set.findings().warnings(), 1);
  EXPECT_EQ(set.findings().list()[0].line, 62);
  EXPECT_NE(set.findings().list()[0].text.find("the video ends after 120 frames: 2 rows are left out"),
            std::string::npos);
}

TEST(VideoSet, ATrialBeyondTheEndIsLeftOutWhole) {
  const SmallSet small;
  std::ofstream(small.annotation("prediction_m01_a_3.csv")) << "Frame,Action\n0,1\n";
  const VideoSet set = small.load();
  EXPECT_EQ(set.trials().size(), 8U);
  EXPECT_NE(set.findings().render().find("the whole trial"), std::string::npos);
}

TEST(VideoSet, ATrialThatIsMissingIsAnErrorSinceLaterOnesWouldBeShifted) {
  const SmallSet small;
  fs::rename(small.annotation("prediction_m01_a_2.csv"), small.annotation("prediction_m01_a_3.csv"));
  EXPECT_NE(small.refusal().find("trial 2 is not there"), std::string::npos) << small.refusal();
}

TEST(VideoSet, FramesBetweenTrialsThatNumbersTellOfKeepTheirPlace) {
  const SmallSet small;
  std::string text = "Frame,Action\n";
  for (int frame = 70; frame < 120; ++frame) text += std::to_string(frame) + ",3\n";
  std::ofstream(small.annotation("prediction_m01_a_2.csv")) << text;
  EXPECT_NE(small.refusal().find("prediction_m01_a_2.csv:2: 10 frames missing before 70"), std::string::npos)
      << small.refusal();
  VideoSetOptions options = small.options();
  options.accept_gaps = true;
  const VideoSet set = load_video_set(options);
  EXPECT_EQ(set.trials()[1].first_frame, 70);
  EXPECT_EQ(set.trials()[1].frames(), 50);
}

TEST(VideoSet, FramesBehindTheLastTrialAreCountedInOneLine) {
  const SmallSet small;
  for (const char* name : {"prediction_m01_a_2.csv", "prediction_m02_b_2.csv"}) fs::remove(small.annotation(name));
  const std::vector<std::string> warnings = small.load().findings().warning_lines();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("120 frames behind the last trial of 2 videos are not trained on (m01_a: 60, m02_b: 60)"),
            std::string::npos)
      << warnings[0];
}

TEST(VideoSet, ClipsOnEitherSideOfAGapAreTwoStretches) {
  const SmallSet small;
  std::string text = "Frame,Action\n";
  for (int frame = 0; frame < 60; ++frame)
    if (frame < 30 || frame >= 33) text += std::to_string(frame) + ",1\n";
  std::ofstream(small.annotation("prediction_m01_a_1.csv")) << text;
  VideoSetOptions options = small.options();
  options.accept_gaps = true;
  const VideoSet set = load_video_set(options);
  const int32_t trials[] = {0, 1};
  const std::vector<Clip> clips = clips_of(set, trials);
  EXPECT_EQ(stretches_of(clips, 1), (std::vector<ClipStretch>{{0, 22}, {22, 41}, {41, 85}}));
  const std::vector<Clip> third = clips_of(set, trials, {.stride = 3});
  EXPECT_EQ(stretches_of(third, 3).size(), 3U);
  EXPECT_TRUE(stretches_of({}, 1).empty());
}

TEST(VideoSet, AnnotationsWithoutAVideoAreRefusedByName) {
  const SmallSet small;
  std::ofstream(small.annotation("prediction_mouse_9_1.csv")) << "Frame,Action\n0,1\n";
  EXPECT_NE(small.refusal().find("Annotations/prediction_mouse_9_1.csv: there is no video mouse_9"), std::string::npos)
      << small.refusal();
}

TEST(VideoSet, AnUnknownLabelIsRefusedByFileAndLine) {
  const SmallSet small;
  small.append("prediction_m01_a_2.csv", "60,sleep\n");
  EXPECT_NE(small.refusal().find("prediction_m01_a_2.csv:62: unknown label \"sleep\""), std::string::npos)
      << small.refusal();
}

TEST(VideoSet, AVideoThatIsNotDecodedIsRefusedWithTheCommand) {
  const SmallSet small;
  std::ofstream(small.folder / "Videos" / "m01_c.mp4") << "x";
  std::ofstream(small.annotation("prediction_m01_c_1.csv")) << "Frame,Action\n0,1\n";
  EXPECT_NE(small.refusal().find("tandem data prepare video"), std::string::npos) << small.refusal();
}

TEST(VideoSet, AVideoWithoutAnnotationsIsNamedAndLeftOut) {
  const SmallSet small;
  std::ofstream(small.folder / "Videos" / "new.mp4") << "x";
  const VideoSet set = small.load();
  EXPECT_EQ(set.videos().size(), 4U);
  EXPECT_NE(set.findings().render().find("Videos/new.mp4: no-annotation: no prediction_new_<trial>.csv"),
            std::string::npos)
      << set.findings().render();
}

TEST(VideoSet, AFolderWithoutVideosIsRefused) {
  const TempDir dir;
  EXPECT_THROW(load_video_set({.folder = dir.path()}), ConfigError);
  EXPECT_THROW(load_video_set({.folder = dir / "none"}), ConfigError);
  std::ofstream(dir / "a.mp4") << "x";
  EXPECT_THROW(load_video_set({.folder = dir.path()}), ConfigError);
}

TEST(VideoSet, DamagedFramesAreRefused) {
  const SmallSet small;
  const fs::path frames = small.folder / "frames" / "m02_b.mp4.32x32.frames";
  {
    std::fstream stream(frames, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(4096 + 1024 * 50);
    stream.put('\0').put('\0').put('\0').put('\0');
  }
  EXPECT_NE(small.refusal().find("frames 0 to 119 are damaged"), std::string::npos) << small.refusal();
}

TEST(VideoSet, LinksAreNamedAndLeftOut) {
  const SmallSet small;
  fs::create_symlink("/etc/passwd", small.annotation("prediction_m01_a_3.csv"));
  EXPECT_NE(small.load().findings().render().find("a symbolic link, which is left out"), std::string::npos);
}

TEST(VideoSplit, WholeGroupsGoToOnePartAndTheSeedDecides) {
  const SmallSet small;
  const VideoSet set = small.load();
  for (const SplitBy by : {SplitBy::kTrial, SplitBy::kVideo, SplitBy::kAnimal}) {
    const VideoSplit split = split_videos(set, {.by = by, .validation_share = 0.25, .seed = 7});
    EXPECT_EQ(split.training.size() + split.validation.size(), 8U);
    EXPECT_EQ(split.validation.size(), by == SplitBy::kAnimal ? 4U : 2U);
    EXPECT_EQ(split_videos(set, {.by = by, .validation_share = 0.25, .seed = 7}).validation, split.validation);
  }
}

TEST(VideoSplit, WhatLeaksIsSaid) {
  const SmallSet small;
  const VideoSet set = small.load();
  EXPECT_TRUE(split_videos(set, {.by = SplitBy::kAnimal}).leaks.empty());
  const std::vector<std::string> by_video = split_videos(set, {.by = SplitBy::kVideo}).leaks;
  ASSERT_EQ(by_video.size(), 1U);
  EXPECT_NE(by_video[0].find("2 of 2 validation trials are of animals that training sees too"), std::string::npos);
  EXPECT_FALSE(split_videos(set, {.by = SplitBy::kTrial}).leaks.empty());
}

TEST(VideoSplit, OneAnimalOfAllVideosIsALeakWhereAnimalsCsvSaysSo) {
  const SmallSet small;
  VideoSetOptions options = small.options();
  options.animal_separator = "0";  // m01_a ... m02_b
  EXPECT_TRUE(split_videos(load_video_set(options), {}).leaks.empty()) << "names are no reason to warn at each start";
  EXPECT_THROW(split_videos(load_video_set(options), {.by = SplitBy::kAnimal}), ConfigError);
  std::ofstream(small.folder / "animals.csv") << "video,animal\nm01_a,x\nm01_b,x\nm02_a,x\nm02_b,x\n";
  const std::vector<std::string> named = split_videos(small.load(), {}).leaks;
  ASSERT_EQ(named.size(), 1U);
  EXPECT_NE(named[0].find("animals.csv says that all 4 videos are of x"), std::string::npos) << named[0];
}

TEST(VideoSplit, CopiesOfAVideoUnderAnotherNameLeak) {
  const SmallSet small;
  {
    const FrameFile frames = FrameFile::open(small.folder / "frames" / "m01_a.mp4.32x32.frames");
    FrameFileWriter writer(small.folder / "frames" / "rat_9.mp4.32x32.frames", 32, 32);
    for (int64_t i = 0; i < frames.frames(); ++i)
      writer.add({frames.frame(i), static_cast<size_t>(frames.frame_bytes())});
    writer.finish({.name = "rat_9.mp4"});
  }
  std::string text = "Frame,Action\n";
  for (int frame = 0; frame < 120; ++frame) text += std::to_string(frame) + ",1\n";
  std::ofstream(small.annotation("prediction_rat_9_1.csv")) << text;
  const VideoSet set = small.load();
  int apart = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const VideoSplit split = split_videos(set, {.by = SplitBy::kVideo, .validation_share = 0.3, .seed = seed});
    const auto judges = [&](const std::string& name) {
      return std::ranges::any_of(split.validation, [&](int32_t trial) {
        return set.videos()[static_cast<size_t>(set.trials()[static_cast<size_t>(trial)].video)].name == name;
      });
    };
    const bool leak = judges("m01_a") != judges("rat_9");
    EXPECT_EQ(std::ranges::any_of(split.leaks,
                                  [](const std::string& l) { return l.find("the same frames") != std::string::npos; }),
              leak)
        << seed;
    apart += leak ? 1 : 0;
  }
  EXPECT_GT(apart, 0);
}

TEST(ClassCounts, WeightsAreTotalOverClassesTimesCount) {
  const ClassTable table = ClassTable::of_names({"a", "b", "c"});
  std::vector<Clip> clips(10);
  for (size_t i = 0; i < 2; ++i) clips[i].label = 1;
  const ClassCounts counts = count_classes(table, clips);
  EXPECT_EQ(counts.weights(), (std::vector<double>{10.0 / 24, 10.0 / 6, 0}));
  EXPECT_EQ(class_table_text(table, counts).substr(0, 62),
            "Class 0 (a):        8 samples (80.00%) -> weight: 0.4167\nClass");
  EXPECT_EQ(check_class_examples(table, counts, counts).size(), 1U);
  const std::vector<std::string> unjudged =
      check_class_examples(table, counts, count_classes(table, {clips.data(), 2}));
  ASSERT_EQ(unjudged.size(), 2U);
  EXPECT_NE(unjudged[0].find("no clip of class 0 (a) judges"), std::string::npos) << unjudged[0];
  std::vector<Clip> judged(1);
  judged[0].label = 2;
  EXPECT_THROW(check_class_examples(table, counts, count_classes(table, judged)), ConfigError);
}

TEST(GeneratedVideos, EveryVideoHasAllActionsAndARareOneIsRare) {
  std::vector<int64_t> counts(7);
  for (int32_t video = 0; video < 3; ++video) {
    std::set<int16_t> seen;
    generate_video({.videos = 3, .trials = 4, .frames = 60, .size = 16}, video,
                   [&](std::span<const uint8_t>, int16_t of_class) { seen.insert(of_class); });
    EXPECT_EQ(seen.size(), 7U);
    generate_video({.videos = 3, .trials = 4, .frames = 200, .size = 16, .rare_share = 0.02}, video,
                   [&](std::span<const uint8_t>, int16_t of_class) { ++counts[static_cast<size_t>(of_class)]; });
  }
  EXPECT_EQ(counts[6], 48);  // 4 events of 12 frames in 2400
}

TEST(GeneratedVideos, AFolderOfSomebodysOwnIsNotFilled) {
  const TempDir dir;
  std::ofstream(dir / "mine.mp4") << "x";
  EXPECT_THROW(make_generated_set(kSmall, dir.path(), nullptr), ConfigError);
  const SmallSet small;
  GeneratedVideoOptions other = kSmall;
  other.seed = 2;
  EXPECT_THROW(make_generated_set(other, small.folder, nullptr), ConfigError);
  EXPECT_NO_THROW(make_generated_set(kSmall, small.folder, nullptr));
}

TEST(GeneratedVideos, WhatAKilledWriterLeftIsNoVideo) {
  const SmallSet small;
  const fs::path left = small.folder / "Videos" / ".tmp-1-m01_a.mp4", other = small.folder / "Videos" / "._m01_a.mp4";
  for (const fs::path& file : {left, other}) std::ofstream(file) << "x";
  EXPECT_EQ(read_video_folder(small.folder).videos.size(), static_cast<size_t>(kSmall.videos));
  make_generated_set(kSmall, small.folder, nullptr);
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(other));
}

TEST(GeneratedVideos, PosesFitTheirFrames) {
  const TempDir dir;
  GeneratedVideoOptions options = kSmall;
  options.poses = true;
  make_generated_set(options, dir / "set", nullptr);
  const VideoSet set = load_video_set({.folder = dir / "set", .height = 32, .width = 32, .poses = true});
  EXPECT_EQ(set.poses().size(), 480U * 18);
}

TEST(GeneratedVideos, PosesOfAVideoThatIsLeftOutAreLeftOutToo) {
  const TempDir dir;
  GeneratedVideoOptions options = kSmall;
  options.poses = true;
  make_generated_set(options, dir / "set", nullptr);
  const VideoSetOptions wanted{.folder = dir / "set", .height = 32, .width = 32, .accept_gaps = true, .poses = true};
  const std::vector<float> all = load_video_set(wanted).poses();
  fs::remove(dir / "set" / "Annotations" / "prediction_m01_a_2.csv");
  std::ofstream(dir / "set" / "Annotations" / "prediction_m01_a_1.csv") << "Frame,Action\n500,1\n";  // beyond the end
  const VideoSet set = load_video_set(wanted);
  ASSERT_EQ(set.videos().size(), 3U);
  EXPECT_EQ(set.poses(), std::vector<float>(all.begin() + 120 * 18, all.end()));
}

}  // namespace
}  // namespace tandem
