// recipes/dqn_checkpoint.h -- about how large a checkpoint of a DQN is, before there is one.
#pragma once

#include <cstdint>

#include "rl/dqn/dqn_settings.h"
#include "rl/replay/replay.h"

namespace tandem {

// The replay buffer decides: an observation, a row and a leaf of the priority tree (a fifteenth more for its inner
// nodes) for each environment step. Weights, target network and two moments are there twice: now, and for roll-back.
inline uint64_t dqn_checkpoint_bytes(const DqnSettings& s, int64_t observation, int64_t actions) {
  const double step = 4.0 * static_cast<double>(observation) + sizeof(ReplayRow) + 8 * 16.0 / 15;
  double weights = 0;
  int64_t width = observation;
  for (const int64_t next : s.net.hidden) {
    weights += static_cast<double>(width + 1) * static_cast<double>(next);
    width = next;
  }
  weights += static_cast<double>((2 * width + actions + 1) * s.net.head);
  return static_cast<uint64_t>(step * static_cast<double>(s.capacity) + 8 * 4 * weights);
}

}  // namespace tandem
