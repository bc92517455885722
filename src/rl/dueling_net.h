// rl/dueling_net.h -- the Q network: hidden layers with layer norm and dropout, then value and advantage.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <vector>

#include "kernels/random_source.h"
#include "rl/dqn_settings.h"

namespace tandem {

class DuelingNetImpl : public torch::nn::Module {
 public:
  DuelingNetImpl(int64_t state_size, int64_t actions, const NetSettings& settings);

  // [B, state_size] -> [B, actions]. With `masks`, one stream for each hidden layer, its dropout is on.
  at::Tensor forward(const at::Tensor& states, const std::vector<RandomSource>* masks = nullptr);

 private:
  at::Tensor attend(const at::Tensor& features);

  NetSettings settings_;
  std::vector<torch::nn::Linear> layers_;
  std::vector<torch::nn::LayerNorm> norms_;
  torch::nn::Linear query_key_value_{nullptr}, attended_{nullptr};
  torch::nn::LayerNorm attention_norm_{nullptr};
  torch::nn::Linear heads_{nullptr}, value_{nullptr}, advantage_{nullptr};
};
TORCH_MODULE(DuelingNet);

}  // namespace tandem
