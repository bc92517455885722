// kernels/random_source.h -- a stream of random numbers, by its key, and where a GPU finds the key when it draws.
#pragma once

#include "kernels/philox.h"

namespace tandem {

// Host code draws from it as from any RandomKey. A kernel that was recorded once and runs at every step reads seed,
// step and shard from `on_device`; the site is its own.
struct RandomSource : RandomKey {
  RandomSource(const RandomKey& key, const RandomKey* where = nullptr) : RandomKey(key), on_device(where) {}
  const RandomKey* on_device;
};

}  // namespace tandem
