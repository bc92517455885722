// rl/dqn/dueling_net.h -- the Q network: hidden layers with layer norm and dropout, then value and advantage.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <vector>

#include "kernels/random_source.h"
#include "rl/dqn/dqn_settings.h"

namespace tandem {

class DuelingNetImpl : public torch::nn::Module {
 public:
  DuelingNetImpl(int64_t observation_size, int64_t actions, const NetSettings& settings);

  // [B, observation_size] -> [B, actions]. With `masks`, one stream for each hidden layer, its dropout is on.
  at::Tensor forward(const at::Tensor& states, const std::vector<RandomSource>* masks = nullptr);

  std::vector<torch::nn::Linear> layers;
  std::vector<torch::nn::LayerNorm> norms;
  torch::nn::Linear query_key_value{nullptr}, attended{nullptr};
  torch::nn::LayerNorm attention_norm{nullptr};
  torch::nn::Linear heads{nullptr}, value{nullptr}, advantage{nullptr};  // heads: the value's part, the advantage's

 private:
  at::Tensor attend(const at::Tensor& features);
  NetSettings settings_;
};
TORCH_MODULE(DuelingNet);

}  // namespace tandem
