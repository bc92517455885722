// recipes/video_data.h -- what a run of `video` learns from: its frames, cut into clips for training and for
// validation.
//
// Everything follows from the settings and the files, on every worker alike; no libtorch.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "recipes/video_settings.h"
#include "video/class_counts.h"
#include "video/clip_set.h"
#include "video/generated_videos.h"
#include "video/pose.h"
#include "video/prepare.h"
#include "video/split.h"
#include "video/video_set.h"

namespace tandem {

struct VideoData {
  VideoSet set;
  VideoSplit split;
  std::vector<Clip> training, validation;  // in the order of trials and frames
  ClassCounts training_counts, validation_counts;
  std::vector<double> class_weights;  // all 1 where the settings ask for none
  std::vector<std::string> warnings;  // classes without an example, what leaks between the parts
  std::vector<float> poses;           // 18 a frame, scaled by training's alone; empty: none
  PoseScaler pose_scaler;

  // Of a clip of training, on average: what the loss divides by, so that its scale does not depend on the weights.
  double mean_weight() const;
};

GeneratedVideoOptions generated_videos_of(const VideoSettings& settings);
// Where the run's videos are: the settings' folder, or that of the generated set.
PrepareOptions prepare_options_of(const VideoSettings& settings);

// Generates the set where the settings name no folder, and decodes what is not decoded yet. Returns what to say of
// generated data; empty where the data are somebody's own. Throws ConfigError.
std::string make_ready(const VideoSettings& settings, const std::function<bool(const PrepareProgress&)>& progress = {});

// Throws ConfigError: data that are not as data_digest says, a class that training lacks, no clips in a part. `verify`:
// reads every frame and compares its sums.
VideoData load_video_data(const VideoSettings& settings, bool verify);

}  // namespace tandem
