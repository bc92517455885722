// nn/clips.h -- the input of a video model: clips out of uint8 frames, augmented, by one kernel on the frames' device.
//
// A clip is a function of its frames and its key: give each row the stream of its sample (SampleWriter's `random`, a
// function of (seed, epoch, sample)), and neither batch nor shard nor device changes a bit of it. In a data set with
// fields() the key is a field {"key", at::kLong, {3}}, written by load_into(): copy random_key_words(random) there.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "kernels/clip_kernels.h"

namespace tandem {

struct ClipShape {
  int length = 17, stride = 1;  // frames of a clip; from one to the next
};

// A key as a row of make_clips()'s `keys`.
std::array<int64_t, 3> random_key_words(const RandomKey& key);

// -> [rows, 1, length, height, width] in `type` (float, bf16 or fp16), values in [0, 1].
//   frames       uint8, on the device to compute on: [count, height, width], a whole video or cache; or the batch's own
//                [rows, count, height, width], with first_frame undefined: row r begins at its own first frame
//   first_frame  int64 [rows], on the same device: where each clip begins
//   keys         int64 [rows, 3], on the same device; undefined: frames / 255, without augmentation
// Throws ConfigError for other shapes, types and devices, and on a CPU for a clip that leaves the frames. On a GPU,
// where nobody waits for it, such a clip is NaN, which the guard of the update reports. No gradient flows.
at::Tensor make_clips(const at::Tensor& frames, const at::Tensor& first_frame, const ClipShape& shape,
                      const ClipAugment& augment, const at::Tensor& keys, at::ScalarType type = at::kFloat);

}  // namespace tandem
