#include "nn/init.h"

#include <torch/torch.h>

#include <cmath>
#include <set>
#include <string>

#include "kernels/cpu/random_fill.h"
#include "nn/sites.h"

namespace tandem {
namespace {

// The kind of torch's layer in whose place a layer of this folder stands; empty for all else.
std::string kind_of_ours(const torch::nn::Module& module) {
  return module.name().starts_with("tandem::") ? module_kind(module) : "";
}

// Half-width of the uniform distribution for this parameter; 0: keep the value; negative: standard normal.
double bound(torch::nn::Module& module, const at::Tensor& parameter) {
  auto fan_in = [](const at::Tensor& weight) { return weight.numel() / weight.size(0); };
  if (auto* linear = module.as<torch::nn::Linear>()) return 1 / std::sqrt(double(fan_in(linear->weight)));
  if (auto* conv = module.as<torch::nn::Conv1d>()) return 1 / std::sqrt(double(fan_in(conv->weight)));
  if (auto* conv = module.as<torch::nn::Conv2d>()) return 1 / std::sqrt(double(fan_in(conv->weight)));
  if (auto* conv = module.as<torch::nn::Conv3d>()) return 1 / std::sqrt(double(fan_in(conv->weight)));
  if (auto* lstm = module.as<torch::nn::LSTM>()) return 1 / std::sqrt(double(lstm->options.hidden_size()));
  if (auto* gru = module.as<torch::nn::GRU>()) return 1 / std::sqrt(double(gru->options.hidden_size()));
  if (module.as<torch::nn::Embedding>()) return -1;
  const std::string kind = kind_of_ours(module);
  for (const char* with_fan_in : {"Linear", "Conv1d", "Conv2d", "Conv3d"})
    if (kind == with_fan_in) return 1 / std::sqrt(double(fan_in(module.named_parameters(/*recurse=*/false)["weight"])));
  if (kind == "LSTM") return 1 / std::sqrt(double(module.named_parameters(/*recurse=*/false)["weight_hh_l0"].size(1)));
  if (kind == "MultiheadAttention" && parameter.dim() == 2)  // in_proj_weight
    return std::sqrt(6 / double(parameter.size(0) + parameter.size(1)));
  return kind == "Embedding" ? -1 : 0;
}

}  // namespace

uint64_t init_weights(torch::nn::Module& module, uint64_t seed, uint64_t first_number) {
  at::NoGradGuard no_grad;
  uint64_t number = first_number;
  const RandomKey key{.seed = seed, .step = 0, .shard = 0, .site = kInitialWeights};
  std::set<const void*> drawn;  // a tied parameter is drawn once
  for (const auto& part : module.modules(/*include_self=*/true)) {
    for (at::Tensor& parameter : part->parameters(/*recurse=*/false)) {
      if (!drawn.insert(parameter.unsafeGetTensorImpl()).second) continue;
      const double b = bound(*part, parameter);
      at::Tensor values = at::empty(parameter.sizes(), at::kFloat);
      if (b > 0) {
        fill_uniform(values.data_ptr<float>(), values.numel(), key, number, static_cast<float>(-b),
                     static_cast<float>(b));
        parameter.copy_(values);
      } else if (b < 0) {
        fill_normal(values.data_ptr<float>(), values.numel(), key, number);
        parameter.copy_(values);
      }
      number += static_cast<uint64_t>(parameter.numel());
    }
  }
  return number;
}

}  // namespace tandem
