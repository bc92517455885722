// tests/gpu/torch_layers.h -- what the models of shard_models.h are made of, from torch's own layers.
//
// shard_layers.h has the same from the layers of src/nn. Torch's BatchNorm is refused by the engine, so this one takes
// ours, without what can be fused into it.
#pragma once

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <optional>
#include <utility>
#include <vector>

#include "nn/batch_norm.h"
#include "nn/dropout.h"

namespace tandem {

struct TorchGeluLinearImpl : torch::nn::LinearImpl {
  using torch::nn::LinearImpl::LinearImpl;
  at::Tensor forward(const at::Tensor& x) { return at::gelu(torch::nn::LinearImpl::forward(x), "tanh"); }
};
TORCH_MODULE(TorchGeluLinear);

struct TorchAttentionImpl : torch::nn::Module {
  explicit TorchAttentionImpl(bool to_earlier) : causal(to_earlier) {}
  at::Tensor forward(const at::Tensor& qkv, const at::Tensor& mask) {  // [rows, tokens, 3, heads, size], [rows, tokens]
    const int64_t rows = qkv.size(0), tokens = qkv.size(1);
    const std::vector<at::Tensor> parts = qkv.permute({2, 0, 3, 1, 4}).unbind(0);
    std::optional<at::Tensor> keys;
    if (mask.defined()) keys = mask.view({rows, 1, 1, tokens});
    return at::scaled_dot_product_attention(parts[0], parts[1], parts[2], keys, 0, causal).transpose(1, 2).flatten(2);
  }
  bool causal;
};
TORCH_MODULE(TorchAttention);

struct TorchMaxPoolImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return at::max_pool2d(x, 3, 2, 1); }
};
TORCH_MODULE(TorchMaxPool);

struct TorchAveragePoolImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x.mean({2, 3}); }
};
TORCH_MODULE(TorchAveragePool);

struct TorchLayers {
  using Linear = torch::nn::Linear;
  using GeluLinear = TorchGeluLinear;
  using LayerNorm = torch::nn::LayerNorm;
  using Embedding = torch::nn::Embedding;
  using Attention = TorchAttention;
  using Conv2d = torch::nn::Conv2d;
  using Norm = BatchNorm;
  using ReluNorm = BatchNorm;
  using MaxPool = TorchMaxPool;
  using AveragePool = TorchAveragePool;

  static Linear linear(int64_t in, int64_t out, bool bias = true) {
    return Linear(torch::nn::LinearOptions(in, out).bias(bias));
  }
  static GeluLinear gelu_linear(int64_t in, int64_t out) { return GeluLinear(in, out); }
  static LayerNorm layer_norm(int64_t width) { return LayerNorm(torch::nn::LayerNormOptions({width})); }
  static Embedding embedding(int64_t count, int64_t width) { return Embedding(count, width); }
  static Attention attention(bool causal) { return Attention(causal); }
  static at::Tensor attend(Attention& layer, const at::Tensor& qkv, const at::Tensor& mask) { return layer(qkv, mask); }
  static Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
    return Conv2d(torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
  }
  static MaxPool max_pool() { return MaxPool(); }
  static Norm norm(int64_t channels) { return Norm(channels); }
  static ReluNorm relu_norm(int64_t channels) { return ReluNorm(channels); }

  // The sum of x and what dropout leaves of `part`, and its norm.
  static std::pair<at::Tensor, at::Tensor> add_and_norm(LayerNorm& layer, const at::Tensor& part, const at::Tensor& x,
                                                        double p, const RandomSource& random) {
    const at::Tensor sum = x + (p > 0 ? dropout(part, p, random) : part);
    return {sum, layer(sum)};
  }
  static at::Tensor norm_relu(ReluNorm& layer, const at::Tensor& x) { return at::relu(layer(x)); }
  static at::Tensor norm_add_relu(ReluNorm& layer, const at::Tensor& x, const at::Tensor& shortcut) {
    return at::relu(layer(x) + shortcut);
  }
  // [n, classes], [n] -> [n]; 0 for a label of `ignored`.
  static at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels, int64_t ignored) {
    namespace F = torch::nn::functional;
    return F::cross_entropy(logits, labels, F::CrossEntropyFuncOptions().reduction(torch::kNone).ignore_index(ignored));
  }
  static at::Tensor head_cross_entropy(Linear& head, const at::Tensor& x, const at::Tensor& labels, int64_t ignored,
                                       int64_t) {
    return cross_entropy(head(x), labels, ignored);
  }
};

}  // namespace tandem
