#include "rl/dqn/dueling_net.h"

#include <torch/torch.h>

#include <cmath>

#include "nn/dropout.h"

namespace tandem {

DuelingNetImpl::DuelingNetImpl(int64_t observation_size, int64_t actions, const NetSettings& settings)
    : settings_(settings) {
  int64_t width = observation_size;
  for (size_t i = 0; i < settings.hidden.size(); ++i) {
    const std::string number = std::to_string(i + 1);
    layers.push_back(register_module("hidden" + number, torch::nn::Linear(width, settings.hidden[i])));
    width = settings.hidden[i];
    norms.push_back(register_module("norm" + number, torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}))));
  }
  if (settings.attention) {
    const int64_t token = width / settings.tokens;
    query_key_value = register_module("query_key_value", torch::nn::Linear(token, 3 * token));
    attended = register_module("attended", torch::nn::Linear(token, token));
    attention_norm = register_module("attention_norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({token})));
  }
  heads = register_module("heads", torch::nn::Linear(width, 2 * settings.head));  // both heads in one GEMM
  value = register_module("value", torch::nn::Linear(settings.head, 1));
  advantage = register_module("advantage", torch::nn::Linear(settings.head, actions));
}

at::Tensor DuelingNetImpl::forward(const at::Tensor& states, const std::vector<RandomSource>* masks) {
  at::Tensor x = states;
  for (size_t i = 0; i < layers.size(); ++i) {
    x = at::relu(norms[i](layers[i](x)));
    if (masks) x = dropout(x, settings_.dropout, masks->at(i));
  }
  if (settings_.attention) x = attend(x);
  const at::Tensor head_features = at::relu(heads(x));
  const at::Tensor state_value = value(head_features.narrow(1, 0, settings_.head));
  const at::Tensor advantages = advantage(head_features.narrow(1, settings_.head, settings_.head));
  return state_value + (advantages - advantages.mean(1, /*keepdim=*/true));
}

// The features of one row are cut into tokens that look at each other; rows of the batch never do.
at::Tensor DuelingNetImpl::attend(const at::Tensor& features) {
  const int64_t rows = features.size(0), width = features.size(1), count = settings_.attention_heads;
  const int64_t token = width / settings_.tokens, part = token / count;
  const at::Tensor tokens = features.view({rows, settings_.tokens, token});
  // [B, tokens, 3, heads, part] -> three of [B * heads, tokens, part]
  const at::Tensor split =
      query_key_value(tokens).view({rows, settings_.tokens, 3, count, part}).permute({2, 0, 3, 1, 4}).contiguous();
  const auto piece = [&](int64_t i) { return split.select(0, i).view({rows * count, settings_.tokens, part}); };
  const at::Tensor attention_weights =
      at::softmax(at::bmm(piece(0), piece(1).transpose(1, 2)) * (1 / std::sqrt(static_cast<double>(part))), 2);
  const at::Tensor mixed = at::bmm(attention_weights, piece(2))
                               .view({rows, count, settings_.tokens, part})
                               .transpose(1, 2)
                               .reshape({rows, settings_.tokens, token});
  return attention_norm(tokens + attended(mixed)).reshape({rows, width});
}

}  // namespace tandem
