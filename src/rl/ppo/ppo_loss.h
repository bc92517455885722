// rl/ppo/ppo_loss.h -- the rows of a mini-batch, and PPO's loss of each.
#pragma once

#include <ATen/core/Tensor.h>

#include "rl/ppo/policy_net.h"
#include "rl/ppo/ppo_kernels.h"

namespace tandem {

struct PpoBatch {
  at::Tensor seen, action, log_prob, advantage, target, weight, number, table_row;  // as in MiniBatch
  MiniBatch rows_from(int64_t first) const;
};

struct PpoLosses {
  at::Tensor rows;   // float [rows], with gradients of policy, value and deviation
  at::Tensor terms;  // float [shards, kPpoTerms]: sums over the rows of each shard
};
PpoLosses ppo_losses(const PolicyOutput& out, const PpoBatch& batch, const RolloutShape& shape,
                     const PpoWeights& weights, int shards);

// Squared errors of each row, summed over what is forecast: [rows].
at::Tensor forecast_losses(const at::Tensor& forecast, const at::Tensor& target, const at::Tensor& weight);

}  // namespace tandem
