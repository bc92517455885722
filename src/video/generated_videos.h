// video/generated_videos.h -- videos of moving shapes with seven actions, for where there are no videos: generated, and
// they say so.
//
// A bright shape on a noisy ground does one of: rest, walk (steadily to one side), shake (to and fro, fast), lick
// (grows and shrinks), flinch (jumps away and back), turn (in a circle), active (random jumps). Shape, size, place,
// brightness, ground and noise are drawn for each trial and say nothing of the action; only movement over some frames
// does. A pure function of the options: whole numbers and Philox, so the same bytes on every machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "video/class_table.h"
#include "video/video_program.h"

namespace tandem {

struct GeneratedVideoOptions {
  int32_t videos = 12, trials = 4;  // trials of each video
  int32_t frames = 120;             // of each trial
  int32_t size = 64;                // height and width
  uint64_t seed = 1;
  double rare_share = 0;  // above 0: the last action has this share of all frames, the others share the rest equally
  bool poses = false;     // DeepLabCut files beside the videos
  void check() const;     // throws ConfigError
};

// The folder was made by make_generated_set().
bool is_generated_folder(const std::filesystem::path& folder);

ClassTable generated_classes();

// Frames of one video, each to `take`, and the class of each. Frame f belongs to trial f / options.frames.
void generate_video(const GeneratedVideoOptions& options, int32_t video,
                    const std::function<void(std::span<const uint8_t> frame, int16_t of_class)>& take);

// Where the generated set of these options lies by default: a folder in the user's cache
// ($XDG_CACHE_HOME/tandem/videos-<digest>, ~/.cache/tandem/...).
std::filesystem::path generated_folder(const GeneratedVideoOptions& options);

// Writes videos, annotations and classes.csv into the folder, in the form that read_video_folder() takes; what is there
// and whole stays. With a program they are real videos, encoded without loss, to be prepared as any others; without
// one (nullptr) the same frames go straight into the cache, at their own size. Returns a sentence that says that the
// data are generated, and how.
std::string make_generated_set(const GeneratedVideoOptions& options, const std::filesystem::path& folder,
                               const VideoProgram* program);

}  // namespace tandem
