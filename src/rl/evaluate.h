// rl/evaluate.h -- evaluation of a libtorch net (rl/play.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "rl/play.h"

namespace tandem {

using QValues = std::function<at::Tensor(const at::Tensor& states)>;  // [n, observation_size] -> [n, actions]

// Always takes the action of the largest value.
Evaluation evaluate(const Environment& environment, const QValues& q_values, int64_t episodes, uint64_t seed);
// The same by actions drawn uniformly.
Evaluation evaluate_random(const Environment& environment, int64_t episodes, uint64_t seed);

}  // namespace tandem
