// rl/evaluate.h -- how well a policy plays: whole episodes, with random numbers that training never draws.
#pragma once

#include <ATen/core/Tensor.h>

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
};

using QValues = std::function<at::Tensor(const at::Tensor& states)>;  // [n, state_size] -> [n, actions]

// Plays `episodes` episodes side by side, always taking the action of the largest value. Equal seeds meet equal luck,
// so that two policies can be compared.
Evaluation evaluate(const Environment& environment, const QValues& q_values, int64_t episodes, uint64_t seed);
// The same by actions drawn uniformly.
Evaluation evaluate_random(const Environment& environment, int64_t episodes, uint64_t seed);

}  // namespace tandem
