// kernels/clip_math.h -- the draws and the arithmetic that cpu/clip_kernels.cc and gpu/clip_kernels.h share.
//
// Numbers of a row's stream: 0 brightness, 1 contrast, 2 and 3 shift down and right, 4 flip, kClipDrops + t whether
// frame t is dropped, kClipNoise + i the noise of element i of [length, height, width]. They never change.
#pragma once

#include <cstdint>

#include "kernels/clip_kernels.h"
#include "kernels/portable.h"

namespace tandem {

inline constexpr uint64_t kClipDrops = 8, kClipNoise = 1 << 20;

struct ClipDraws {
  float scale = 1, offset = 0;
  int down = 0, right = 0;
  bool flip = false;
};

// Uniform in 1 +- range.
TANDEM_HD float clip_factor(uint32_t bits, float range) {
  return 1.0f + range * (2.0f * uniform_from_u32(bits) - 1.0f);
}
// Uniform among -most .. most.
TANDEM_HD int clip_move(uint32_t bits, int most) {
  return static_cast<int>((uint64_t{bits} * static_cast<uint32_t>(2 * most + 1)) >> 32) - most;
}

TANDEM_HD ClipDraws clip_draws(const ClipAugment& augment, const RandomKey& key) {
  const PhiloxBlock block = random_block(key, 0);
  ClipDraws draws;
  const float brightness = clip_factor(block.word[0], augment.brightness);
  const float contrast = clip_factor(block.word[1], augment.contrast);
  draws.scale = contrast * brightness;
  draws.offset = (0.5f - 0.5f * contrast) * brightness;
  draws.down = clip_move(block.word[2], augment.shift);
  draws.right = clip_move(block.word[3], augment.shift);
  if (augment.flip > 0) draws.flip = random_uniform(key, 4) < augment.flip;
  return draws;
}

// The frame of the clip that is shown at t.
TANDEM_HD int clip_source_frame(const ClipAugment& augment, const RandomKey& key, int t) {
  if (augment.frame_drop > 0)
    while (t > 0 && random_uniform(key, kClipDrops + static_cast<uint64_t>(t)) < augment.frame_drop) --t;
  return t;
}

TANDEM_HD int clip_clamped(int i, int size) { return i < 0 ? 0 : i >= size ? size - 1 : i; }
TANDEM_HD int clip_source_row(const ClipDraws& draws, int h, int height) {
  return clip_clamped(h - draws.down, height);
}
TANDEM_HD int clip_source_column(const ClipDraws& draws, int w, int width) {
  const int from = clip_clamped(w - draws.right, width);
  return draws.flip ? width - 1 - from : from;
}

TANDEM_HD float clip_value(uint8_t pixel) { return static_cast<float>(pixel) / 255.0f; }
TANDEM_HD float clip_augmented(uint8_t pixel, const ClipDraws& draws, float noise) {
  const float value = (clip_value(pixel) * draws.scale + draws.offset) + noise;
  return value < 0.0f ? 0.0f : value > 1.0f ? 1.0f : value;
}

// Where row `row` begins; -1: it does not lie within the frames.
TANDEM_HD int64_t clip_first_frame(const ClipCall& call, int64_t row) {
  const int64_t first = call.first_frame ? call.first_frame[row] : row * call.frames_per_row;
  const int64_t last = first + int64_t{call.length - 1} * call.stride;
  return first < 0 || last >= call.frame_count ? -1 : first;
}

}  // namespace tandem
