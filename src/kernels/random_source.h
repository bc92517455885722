// kernels/random_source.h -- the key of a random stream, and where a captured kernel reads it.
#pragma once

#include "kernels/philox.h"

namespace tandem {

// Host code draws from it as from any RandomKey. A kernel that was captured once and is replayed at every step reads
// seed, step and shard from `on_device`; the site is its own.
struct RandomSource : RandomKey {
  RandomSource(const RandomKey& key, const RandomKey* where = nullptr, bool trains = true)
      : RandomKey(key), on_device(where), training(trains) {}
  // Seed and step of the present step, where this key was captured; the shard is the capture's own.
  TANDEM_HD RandomKey present() const {
    RandomKey now = *this;
    if (on_device) {
      now.seed = on_device->seed;
      now.step = on_device->step;
    }
    return now;
  }
  const RandomKey* on_device;
  bool training;  // false: in validation; dropout passes everything on
  // The draws are those of so many shards in a row, from `shard` on: the same part of the numbers for each, and index i
  // of a part is index i of its shard's stream.
  int shards = 1;
};

}  // namespace tandem
