// tests/gpu/transformer.h -- a transformer of the given kind of layers (torch_layers.h, shard_layers.h).
#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include <cmath>
#include <memory>
#include <tuple>
#include <vector>

#include "nn/shard_sums.h"
#include "nn/tie_weights.h"
#include "shard_data.h"
#include "shard_models.h"

namespace tandem {

template <class Layers>
struct TransformerBlock : torch::nn::Module {
  explicit TransformerBlock(const TransformerOptions& o)
      : heads(o.heads),
        ln_1(register_module("ln_1", Layers::layer_norm(o.width))),
        c_attn(register_module("c_attn", Layers::linear(o.width, 3 * o.width))),
        attention(register_module("attention", Layers::attention(o.causal))),
        c_proj(register_module("c_proj", Layers::linear(o.width, o.width))),
        ln_2(register_module("ln_2", Layers::layer_norm(o.width))),
        c_fc(register_module("c_fc", Layers::gelu_linear(o.width, 4 * o.width))),
        c_out(register_module("c_out", Layers::linear(4 * o.width, o.width))) {}
  at::Tensor attend(const at::Tensor& x, const at::Tensor& mask) {
    const at::Tensor qkv = c_attn(x);
    return c_proj(Layers::attend(attention, qkv.view({qkv.size(0), qkv.size(1), 3, heads, -1}), mask));
  }
  at::Tensor think(const at::Tensor& x) { return c_out(c_fc(x)); }

  int64_t heads;
  typename Layers::LayerNorm ln_1;
  typename Layers::Linear c_attn;
  typename Layers::Attention attention;
  typename Layers::Linear c_proj;
  typename Layers::LayerNorm ln_2;
  typename Layers::GeluLinear c_fc;
  typename Layers::Linear c_out;
};

template <class Layers>
class Transformer : public ShardModel {
 public:
  explicit Transformer(const TransformerOptions& options)
      : options_(options),
        wte(register_module("wte", Layers::embedding(options.vocabulary, options.width))),
        wpe(register_module("wpe", Layers::embedding(options.tokens, options.width))),
        list_(register_module("h", torch::nn::ModuleList())),
        ln_f(register_module("ln_f", Layers::layer_norm(options.width))),
        head(register_module("head", Layers::linear(options.width, options.vocabulary, !options.causal))) {
    for (int64_t i = 0; i < options.layers; ++i) {
      blocks_.push_back(std::make_shared<TransformerBlock<Layers>>(options));
      list_->push_back(blocks_.back());
    }
    if (!options.causal) {
      ln_e = register_module("ln_e", Layers::layer_norm(options.width));
      transform = register_module("transform", Layers::gelu_linear(options.width, options.width));
    }
    tie_weights(head, wte);
  }

  at::Tensor forward(const Batch& batch, const ShardContext& context) override {
    const at::Tensor& tokens = batch.tensors[0];
    at::Tensor x = wte(tokens) + wpe(at::arange(options_.tokens, tokens.options()).expand_as(tokens));
    if (options_.mixes_rows) x = x - x.mean(0, true);
    return options_.causal ? norms_before(x, context) : norms_after(x, batch.tensors[1], context);
  }

  at::Tensor row_losses(const at::Tensor& output, const Batch& batch) override {
    const at::Tensor& labels = batch.tensors.back();
    const at::Tensor rows = output.flatten(0, 1), flat = labels.flatten();
    const at::Tensor losses = options_.head_chunk > 0
                                  ? Layers::head_cross_entropy(head, rows, flat, kIgnoredLabel, options_.head_chunk)
                                  : Layers::cross_entropy(rows, flat, kIgnoredLabel);
    const at::Tensor counted = labels != kIgnoredLabel;
    const at::Tensor weight = counted.to(at::kFloat) / counted.sum(1, true);
    return shard_sums(losses.to(at::kFloat), weight.flatten(), static_cast<int>(labels.size(0)));
  }

  InitRules initial_weights() const override {
    return InitRules()
        .name("*.weight", init::normal(0.02))
        .name("*.bias", init::zeros())
        .name("*ln_*.weight", init::ones())
        .name("h.*.c_proj.weight", init::normal(0.02 / std::sqrt(2.0 * static_cast<double>(options_.layers))))
        .name("h.*.c_out.weight", init::normal(0.02 / std::sqrt(2.0 * static_cast<double>(options_.layers))));
  }

 private:
  at::Tensor drop(const at::Tensor& x, const RandomSource& random) const {
    return options_.dropout > 0 ? dropout(x, options_.dropout, random) : x;
  }
  at::Tensor logits(const at::Tensor& x) { return options_.head_chunk > 0 ? x : head(x); }
  // Each part's output waits to be added where the next norm reads it.
  at::Tensor norms_before(at::Tensor x, const ShardContext& context) {
    uint32_t site = 0;
    x = drop(x, context.random(site++));
    at::Tensor part;
    const auto norm = [&](typename Layers::LayerNorm& layer) {
      if (!part.defined()) return layer(x);
      at::Tensor normed;
      std::tie(x, normed) = Layers::add_and_norm(layer, part, x, options_.dropout, context.random(site++));
      return normed;
    };
    for (const auto& block : blocks_) {
      part = block->attend(norm(block->ln_1), {});
      part = block->think(norm(block->ln_2));
    }
    return logits(norm(ln_f));
  }
  at::Tensor norms_after(at::Tensor x, const at::Tensor& mask, const ShardContext& context) {
    uint32_t site = 0;
    x = drop(ln_e(x), context.random(site++));
    const auto norm = [&](typename Layers::LayerNorm& layer, const at::Tensor& part) {
      return Layers::add_and_norm(layer, part, x, options_.dropout, context.random(site++)).second;
    };
    for (const auto& block : blocks_) {
      x = norm(block->ln_1, block->attend(x, mask));
      x = norm(block->ln_2, block->think(x));
    }
    return logits(ln_f(transform(x)));
  }

  TransformerOptions options_;
  typename Layers::Embedding wte, wpe;
  torch::nn::ModuleList list_;
  std::vector<std::shared_ptr<TransformerBlock<Layers>>> blocks_;
  typename Layers::LayerNorm ln_f, ln_e{nullptr};
  typename Layers::Linear head;
  typename Layers::GeluLinear transform{nullptr};
};

}  // namespace tandem
