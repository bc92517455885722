// kernels/clip_kernels.h -- clips of a video model out of uint8 frames: gathered, scaled to [0, 1] and augmented at
// once.
//
// Every draw is a number of the row's own stream, so a clip is a function of its frames and its key, whatever stands
// beside it. CPU and CUDA give equal bits. On a GPU the call only queues work on `stream`.
#pragma once

#include <cstdint>

#include "kernels/float_bits.h"
#include "kernels/gpu/kernel_tables.h"
#include "kernels/philox.h"

namespace tandem {

// What is done to a clip, in this order. 0: not done.
struct ClipAugment {
  float frame_drop = 0.1f;  // with this probability a frame is replaced by the one before it; never the first one
  float flip = 0;           // with this probability left and right change places; labels may depend on the side
  int shift = 5;            // moved by up to so many pixels, each way; what comes in repeats the border
  float contrast = 0.2f;    // distance from 1/2 times 1 +- contrast
  float brightness = 0.2f;  // all times 1 +- brightness
  float noise = 0.02f;      // standard deviation of what is added to each pixel; then all is cut to [0, 1]
};

struct ClipCall {
  const uint8_t* frames = nullptr;  // [frame_count, height, width]
  int64_t frame_count = 0;
  const int64_t* first_frame = nullptr;  // [rows]; null: row r begins at frame r * frames_per_row
  int64_t frames_per_row = 0;
  int64_t rows = 0;
  int length = 0, stride = 1;  // of a clip, in frames; from one to the next
  int height = 0, width = 0;
  ClipAugment augment;
  const RandomKey* keys = nullptr;  // [rows], on the device of the frames; null: no augmentation
  TypedOutput out;                  // [rows, length, height, width]; a clip that leaves the frames is NaN
};

struct ClipKernels {
  static constexpr KernelTableId kId{"clip", 1};
  static const ClipKernels& cpu();

  void (*make)(const ClipCall& call, void* stream);
};

namespace cuda {
const ClipKernels& clip_kernels();
}

}  // namespace tandem
