// recipes/video_predictor.h -- a trained net over all frames of a decoded video: a class and its probability for each.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "kernels/clip_kernels.h"
#include "recipes/video_data.h"

namespace tandem {

class VideoNet;

ClipAugment clip_augment(const VideoSettings& settings);
at::ScalarType clip_type(const VideoSettings& settings);  // what the net computes in

// {"ask": "predict", "frames": FILE, "poses": FILE or "", "rows": clips at once, of a GPU} -> {"classes":
// names, "predicted": [a number for each frame], "probability": [...], "rows": clips at once, "seconds",
// "frames_per_second": without the first batch; null: there was no other}. FILE: video/frame_file.h, of the run's size.
// A frame has the class of the clip around it; those nearer to an end than half a clip have that of the nearest clip.
// Throws ConfigError.
std::string answer_prediction(const std::string& question, VideoNet& net, const VideoData& data,
                              const VideoSettings& settings);

}  // namespace tandem
