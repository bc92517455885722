// rl/play.h -- evaluation of a policy: whole episodes, with random numbers that training never draws. No libtorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
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

// Where a policy writes the actions of n environments: one of the two, as the environment has them.
struct ChosenActions {
  int32_t* discrete = nullptr;  // [n]
  float* continuous = nullptr;  // [n, action_size]
};
// Chooses an action for each of n environments. `states` as the environment keeps them.
using Policy = std::function<void(const std::byte* states, int64_t n, uint64_t step, const ChosenActions& actions)>;

struct TakenAction {
  int32_t discrete = 0;
  std::span<const float> continuous;  // empty: it is discrete
};

// Sees every environment step: of which episode, what was seen before and after it, and what came of it.
using Watcher = std::function<void(int64_t episode, const float* before, const TakenAction& action,
                                   const Outcome& outcome, const float* after)>;

// Runs `episodes` episodes in parallel. Equal seeds give equal random numbers, so that policies can be compared.
Evaluation play(const Environment& environment, const Policy& policy, int64_t episodes, uint64_t seed,
                const Watcher& watcher = {});
// Actions drawn uniformly; continuous ones from their whole range.
Policy random_play(const Environment& environment, uint64_t seed);

// The half width of a 95 % interval, in standard errors.
inline constexpr double kInterval = 1.959964;

}  // namespace tandem
