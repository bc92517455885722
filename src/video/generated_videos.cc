#include "video/generated_videos.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/errors.h"
#include "base/file_system.h"
#include "base/printable.h"
#include "base/sha256.h"
#include "video/annotations.h"
#include "video/frame_file.h"
#include "video/generated_scene.h"
#include "video/video_folder.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr char kMarker[] = "GENERATED.txt";
constexpr double kFramesPerSecond = 30;

std::string options_text(const GeneratedVideoOptions& options) {
  return fmt::format("form 2\nvideos {}\ntrials {}\nframes {}\nsize {}\nseed {}\nrare_share {}\nposes {}\n",
                     options.videos, options.trials, options.frames, options.size, options.seed, options.rare_share,
                     options.poses);
}

std::string marker_text(const GeneratedVideoOptions& options) {
  return "These videos are GENERATED: moving shapes, made by tandem. They show no animal, and what a model scores on "
         "them\n"
         "says nothing of real videos.\n" +
         options_text(options);
}

// "m03_b": two videos of each animal.
std::string video_name(int32_t video) { return fmt::format("m{:02}_{}", video / 2 + 1, video % 2 ? 'b' : 'a'); }

// A folder of the user's is never filled up with shapes.
void claim_folder(const GeneratedVideoOptions& options, const fs::path& folder) {
  FileSystem& files = FileSystem::real();
  files.mkdir(folder);
  if (files.exists(folder / kMarker)) {
    if (read_whole_file(files, folder / kMarker, 1 << 16).text() == marker_text(options)) return;
    throw ConfigError(fmt::format("{} holds generated videos of other settings", printable(folder.string())),
                      "their number, length, size or seed is another", "take the folder away, or name another");
  }
  if (!files.list(folder).empty())
    throw ConfigError(fmt::format("{} is not empty", printable(folder.string())),
                      "generated videos are not mixed with others", "name another folder");
  replace_file(files, folder / kMarker, marker_text(options));
}

// What stands in the files of one video.
struct VideoTexts {
  std::vector<std::string> annotations;  // of each trial
  std::string pose;

  explicit VideoTexts(const GeneratedVideoOptions& options) {
    annotations.assign(static_cast<size_t>(options.trials), "Frame,Action\n");
    if (options.poses) pose = pose_header();
  }
  void add(int64_t frame, const GeneratedVideoOptions& options, int16_t of_class, const SceneFrame& scene) {
    annotations[static_cast<size_t>(frame / options.frames)] +=
        fmt::format("{},{}\n", frame % options.frames, of_class);
    if (options.poses) pose += pose_row(frame, scene);
  }

 private:
  static std::string pose_header() {
    std::string scorer = "scorer", parts = "bodyparts", coords = "coords";
    for (const char* part : kScenePartNames) {
      for (const char* coord : {"x", "y", "likelihood"}) {
        scorer += ",generated";
        parts += fmt::format(",{}", part);
        coords += fmt::format(",{}", coord);
      }
    }
    return fmt::format("{}\n{}\n{}\n", scorer, parts, coords);
  }
  static std::string pose_row(int64_t frame, const SceneFrame& scene) {
    std::string row = fmt::format("{}", frame);
    for (const ScenePoint& point : scene.parts()) row += fmt::format(",{:.2f},{:.2f},0.99", point.x, point.y);
    return row + "\n";
  }
};

void write_texts(const fs::path& folder, const std::string& name, const VideoTexts& texts) {
  FileSystem& files = FileSystem::real();
  for (size_t i = 0; i < texts.annotations.size(); ++i)
    replace_file(files, folder / "Annotations" / fmt::format("prediction_{}_{}.csv", name, i + 1),
                 texts.annotations[i]);
  if (!texts.pose.empty()) replace_file(files, folder / "Poses" / (name + "DLC_generated.csv"), texts.pose);
}

using TakeFrame = std::function<void(std::span<const uint8_t>)>;

VideoTexts draw_video(const GeneratedVideoOptions& options, int32_t video, const TakeFrame& take) {
  VideoTexts texts(options);
  GeneratedScene scene(options, video);
  std::vector<uint8_t> pixels(static_cast<size_t>(options.size) * static_cast<size_t>(options.size));
  for (int64_t frame = 0; frame < int64_t{options.trials} * options.frames; ++frame) {
    const SceneFrame drawn = scene.draw(frame, pixels);
    take(pixels);
    texts.add(frame, options, drawn.of_class, drawn);
  }
  return texts;
}

void make_video(const GeneratedVideoOptions& options, int32_t video, const fs::path& folder,
                const VideoProgram* program) {
  const std::string name = video_name(video), file = name + ".mp4";
  const fs::path path =
      program ? folder / "Videos" / file : frame_file_path(folder / "frames", file, options.size, options.size);
  if (FileSystem::real().exists(path)) return;  // they appear whole, after their annotations
  if (program) {
    VideoWriter writer(*program, path, options.size, options.size, kFramesPerSecond, true);
    write_texts(folder, name, draw_video(options, video, [&](std::span<const uint8_t> frame) { writer.add(frame); }));
    writer.finish();
    return;
  }
  FrameFileWriter writer(path, options.size, options.size);
  write_texts(folder, name, draw_video(options, video, [&](std::span<const uint8_t> frame) { writer.add(frame); }));
  writer.finish({.name = file,
                 .scaling = "none",
                 .height = options.size,
                 .width = options.size,
                 .frames_per_second = kFramesPerSecond,
                 .generated = true});
}

}  // namespace

void GeneratedVideoOptions::check() const {
  const auto refuse = [](std::string what, const char* todo) {
    throw ConfigError(std::move(what), "the generated videos can't be made so", todo);
  };
  if (videos < 2 || videos > 10'000) refuse(fmt::format("{} generated videos", videos), "use 2 to 10000");
  if (trials < 1 || trials > 1000) refuse(fmt::format("{} trials of each generated video", trials), "use 1 to 1000");
  if (frames < 40 || frames > 100'000)
    refuse(fmt::format("{} frames of each generated trial", frames), "use 40 to 100000");
  if (size < 16 || size > 1024) refuse(fmt::format("generated frames of {0} x {0}", size), "use 16 to 1024");
  if (!(rare_share >= 0 && rare_share <= 0.1)) refuse(fmt::format("a rare share of {}", rare_share), "use 0 to 0.1");
}

bool is_generated_folder(const fs::path& folder) { return FileSystem::real().exists(folder / kMarker); }

ClassTable generated_classes() {
  return ClassTable::of_names({"rest", "walk", "shake", "lick", "flinch", "turn", "active"});
}

void generate_video(const GeneratedVideoOptions& options, int32_t video,
                    const std::function<void(std::span<const uint8_t>, int16_t)>& take) {
  options.check();
  GeneratedScene scene(options, video);
  std::vector<uint8_t> pixels(static_cast<size_t>(options.size) * static_cast<size_t>(options.size));
  for (int64_t frame = 0; frame < int64_t{options.trials} * options.frames; ++frame) {
    const SceneFrame drawn = scene.draw(frame, pixels);
    take(pixels, drawn.of_class);
  }
}

fs::path generated_folder(const GeneratedVideoOptions& options) {
  Sha256 sum;
  sum.update(options_text(options));
  const std::string name = "videos-" + sum.hex().substr(0, 12);
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache) return fs::path(cache) / "tandem" / name;
  if (const char* home = std::getenv("HOME"); home && *home) return fs::path(home) / ".cache" / "tandem" / name;
  return fs::temp_directory_path() / ("tandem-" + name);
}

std::string make_generated_set(const GeneratedVideoOptions& options, const fs::path& folder,
                               const VideoProgram* program) {
  options.check();
  claim_folder(options, folder);
  FileSystem& files = FileSystem::real();
  for (const char* part : {"Videos", "Annotations"}) files.mkdir(folder / part);
  if (options.poses) files.mkdir(folder / "Poses");
  for (const std::string& name : files.list(folder / "Videos"))  // of a writer that was killed (video_program.cc)
    if (name.starts_with(".tmp-")) files.remove_all(folder / "Videos" / name);
  replace_file(files, folder / "classes.csv", generated_classes().csv());
  for (int32_t video = 0; video < options.videos; ++video) make_video(options, video, folder, program);
  return fmt::format(
      "GENERATED data: {} videos of moving shapes, {} trials of {} frames each, {} x {}{}{}. They show no "
      "animal, and a score on them says nothing of real videos.",
      options.videos, options.trials, options.frames, options.size, options.size,
      options.rare_share > 0 ? fmt::format(", {:g} % of one class", 100 * options.rare_share) : "",
      program ? "" : "; there is no tandem-video here, so they are frames that never were a video file");
}

}  // namespace tandem
