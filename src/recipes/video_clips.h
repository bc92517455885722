// recipes/video_clips.h -- clips as a data set of the engine: where the frames lie, and what a sample is.
//
// Either all frames lie on the device and a sample is the number of its first frame, or a sample is its own frames,
// copied from the mapped cache by loader threads. Both lead to the same clips, to the bit (nn/clips.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>

#include "engine/batch.h"
#include "nn/clips.h"
#include "recipes/video_data.h"

namespace tandem {

// Fields of a batch.
enum ClipField : size_t { kClipFrames, kClipLabel, kClipKey, kClipPose };

// Frames of the whole set on this process's device, [frames, height, width]; undefined where the settings say no, or
// where they do not fit. Throws ConfigError where the settings insist and they do not fit.
at::Tensor frames_on_device(const VideoData& data, const VideoSettings& settings);

// `resident`: samples are numbers of frames. `data` and `clips` outlive it.
std::unique_ptr<Dataset> clip_data(const VideoData& data, std::span<const Clip> clips, const VideoSettings& settings,
                                   bool resident);

}  // namespace tandem
