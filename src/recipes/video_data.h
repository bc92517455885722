// recipes/video_data.h -- what a run of `video` learns from: its frames, cut into clips for training and for
// validation.
//
// Everything follows from the settings and the files, on every worker alike; no libtorch.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
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
  std::vector<std::string> class_names;
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

struct ReadyVideos {
  std::string generated;     // what to say of generated data; empty: the data are somebody's own
  DataFindings preparation;  // warnings, where something was decoded now
};
// Generates the set where the settings name no folder, and decodes what is not decoded yet and will train or judge.
// Throws ConfigError, in the same words until the data are mended.
ReadyVideos make_ready(const VideoSettings& settings, const std::function<bool(const PrepareProgress&)>& progress = {});

// Throws ConfigError: data that are not as data_digest says, a class that training lacks, no clips in a part. `verify`:
// reads every frame and compares its sums.
VideoData load_video_data(const VideoSettings& settings, bool verify);

// What of the data outlives them in the settings of a run: names of classes, the scale of poses.
void keep_for_prediction(const VideoData& data, VideoSettings& settings);
// That, and as many clips of nothing as a job is made with: for a question about the weights. Nothing: the run is of a
// version that kept none.
std::optional<VideoData> video_data_kept(const VideoSettings& settings);

}  // namespace tandem
