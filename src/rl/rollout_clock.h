// rl/rollout_clock.h -- which rollout of a run it is, and which of its time steps, from the step of a random key: a
// captured kernel reads that step on the GPU (kernels/random_source.h).
#pragma once

#include <cstdint>

#include "kernels/philox.h"

namespace tandem {

struct RolloutClock {
  int64_t key_steps = 1;  // of a random key, from one rollout to the next: its micro-batches
  int64_t horizon = 1;    // time steps of a rollout

  TANDEM_HD int64_t rollout(const RandomKey& key) const { return static_cast<int64_t>(key.step) / key_steps; }
  // The key of time step t: no other time step of the run has its step.
  TANDEM_HD RandomKey at(RandomKey key, int64_t t) const {
    key.step = static_cast<uint64_t>(rollout(key) * horizon + t);
    return key;
  }
};

}  // namespace tandem
