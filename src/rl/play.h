// rl/play.h -- evaluation of a policy: whole episodes, with random numbers that training never draws. No libtorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rl/environment.h"

namespace tandem {

struct Evaluation {
  int64_t episodes = 0;
  double mean = 0, error = 0;                         // of the return, and the mean's standard error
  std::vector<std::pair<std::string, double>> terms;  // mean sum over an episode
  std::optional<double> score, score_error;           // on the environment's own scale
  std::vector<double> returns;                        // of each episode, to compare policies by pairs
};

// Chooses an action for each of n environments. `states` as the environment keeps them.
using Policy = std::function<void(const std::byte* states, int64_t n, uint64_t step, int32_t* actions)>;

// Sees every environment step: of which episode, what was seen before and after it, and what came of it.
using Watcher = std::function<void(int64_t episode, const float* before, int32_t action, const Outcome& outcome,
                                   const float* after)>;

// Runs `episodes` episodes in parallel. Equal seeds give equal random numbers, so that policies can be compared.
Evaluation play(const Environment& environment, const Policy& policy, int64_t episodes, uint64_t seed,
                const Watcher& watcher = {});
// Actions drawn uniformly.
Policy random_play(const Environment& environment, uint64_t seed);

// The half width of a 95 % interval, in standard errors.
inline constexpr double kInterval = 1.959964;

}  // namespace tandem
