// nn/embedding.h -- a table of rows, looked up by token.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <optional>

#include "nn/layer_context.h"

namespace tandem {

class EmbeddingImpl : public torch::nn::Module, public ShardAware {
 public:
  // padding_idx: a token whose row is 0 at first and gets no gradient.
  EmbeddingImpl(int64_t count, int64_t width, std::optional<int64_t> padding_idx = {});

  // int64 [rows, ...] -> float [rows, ..., width], under autocast too, as PyTorch's.
  // Throws ConfigError for tokens that are not integers, for rows that do not divide by the shards, and on the CPU for
  // a token outside [0, count). A GPU can't tell in time: the row of such a token is NaN, and the engine, which looks
  // for NaN, stops and names it.
  // Backward adds up the rows of a token one after the other, so a token that fills a batch is slow on a GPU.
  at::Tensor forward(const at::Tensor& tokens);

  int64_t count() const { return weight.size(0); }
  int64_t width() const { return weight.size(1); }
  std::optional<int64_t> padding_idx() const { return padding_idx_; }
  at::Tensor weight;  // [count, width]

 private:
  friend struct EmbeddingFunction;
  void refuse_bad_tokens(const at::Tensor& tokens) const;
  std::optional<int64_t> padding_idx_;
};
TORCH_MODULE(Embedding);

}  // namespace tandem
