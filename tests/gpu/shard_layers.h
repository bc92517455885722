// tests/gpu/shard_layers.h -- what the models of shard_models.h are made of, from the layers of src/nn that run several
// shards in one pass. torch_layers.h has the same from torch's own.
#pragma once

#include <utility>

#include "nn/attention.h"
#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/cross_entropy.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"
#include "nn/pool2d.h"

namespace tandem {

struct ShardLayers {
  using Linear = tandem::Linear;
  using GeluLinear = tandem::Linear;
  using LayerNorm = tandem::LayerNorm;
  using Embedding = tandem::Embedding;
  using Attention = tandem::Attention;
  using Conv2d = tandem::Conv2d;
  using Norm = BatchNorm;
  using ReluNorm = BatchNorm;
  using MaxPool = tandem::MaxPool2d;
  using AveragePool = tandem::GlobalAvgPool2d;

  static Linear linear(int64_t in, int64_t out, bool bias = true) {
    return Linear(LinearOptions{.in = in, .out = out, .bias = bias});
  }
  static GeluLinear gelu_linear(int64_t in, int64_t out) {
    return Linear(LinearOptions{.in = in, .out = out, .gelu = GeluForm::kTanh});
  }
  static LayerNorm layer_norm(int64_t width) { return LayerNorm(width); }
  static Embedding embedding(int64_t count, int64_t width) { return Embedding(count, width); }
  static Attention attention(bool causal) { return Attention(AttentionOptions{.causal = causal}); }
  static at::Tensor attend(Attention& layer, const at::Tensor& qkv, const at::Tensor& mask) {
    return layer->forward_packed(qkv, mask);
  }
  static Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
    return Conv2d(
        Conv2dOptions{.in = in, .out = out, .kernel = kernel, .stride = stride, .padding = kernel / 2, .bias = false});
  }
  static MaxPool max_pool() { return MaxPool(Pool2dOptions{.kernel = 3, .stride = 2, .padding = 1}); }
  static Norm norm(int64_t channels) { return Norm(channels); }
  static ReluNorm relu_norm(int64_t channels) { return ReluNorm(channels); }

  static std::pair<at::Tensor, at::Tensor> add_and_norm(LayerNorm& layer, const at::Tensor& part, const at::Tensor& x,
                                                        double p, const RandomSource& random) {
    const LayerNormImpl::Sum sum = layer->forward_residual(p > 0 ? dropout(part, p, random) : part, x);
    return {sum.sum, sum.normed};
  }
  static at::Tensor norm_relu(ReluNorm& layer, const at::Tensor& x) { return layer(x, BatchNormFused{.relu = true}); }
  static at::Tensor norm_add_relu(ReluNorm& layer, const at::Tensor& x, const at::Tensor& shortcut) {
    return layer(x, BatchNormFused{.relu = true, .add = shortcut});
  }
  static at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels, int64_t ignored) {
    return tandem::cross_entropy(logits, labels, {.ignore_index = ignored});
  }
  static at::Tensor head_cross_entropy(Linear& head, const at::Tensor& x, const at::Tensor& labels, int64_t ignored,
                                       int64_t chunk) {
    return tandem::head_cross_entropy(*head, x, labels, {.ignore_index = ignored}, chunk);
  }
};

}  // namespace tandem
