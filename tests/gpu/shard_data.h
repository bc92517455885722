// tests/gpu/shard_data.h -- made-up data for the models of shard_models.h: each sample is a function of its number.
#pragma once

#include <memory>

#include "engine/batch.h"

namespace tandem {

inline constexpr int64_t kIgnoredLabel = -100;

struct TextOptions {
  int64_t samples = 4096, tokens = 128, vocabulary = 512;
  bool causal = true;
  bool resident = false;
};

// Sequences that count in steps of their own, with an error now and then.
//   causal   [tokens] int64, [tokens] int64: each one's successor
//   masked   [tokens] int64 with words masked and others behind the end, [tokens] bool: which are part of the sentence,
//            [tokens] int64: what was masked, kIgnoredLabel elsewhere
std::unique_ptr<Dataset> make_text(const TextOptions& options);

struct PictureOptions {
  int64_t samples = 4096, side = 64, classes = 100;
  bool resident = false;
};

// [side, side, 3] uint8, [] int64: stripes whose direction, width and colour are the class, in noise.
std::unique_ptr<Dataset> make_pictures(const PictureOptions& options);

}  // namespace tandem
