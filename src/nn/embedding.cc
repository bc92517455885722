#include "nn/embedding.h"

#include <torch/torch.h>

#include "base/errors.h"
#include "kernels/token_kernels.h"
#include "nn/kernel_choice.h"
#include "nn/shard_rows.h"

namespace tandem {
namespace {

struct SortedTokens {
  at::Tensor keys, rows;
};

// As EmbeddingBackward wants them. Stable, so that the rows of a token stay in order.
SortedTokens sort_tokens(const at::Tensor& tokens, int shards, int64_t count) {
  const at::Tensor by_shard = tokens.reshape({shards, -1});
  const at::Tensor first = at::arange(shards, tokens.options()).unsqueeze(1) * count;
  const at::Tensor unknown = by_shard.lt(0).logical_or_(by_shard.ge(count));
  const at::Tensor keys = (by_shard + first).masked_fill_(unknown, shards * count).flatten();
  auto [sorted, rows] = at::sort(keys, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  return {sorted, rows};
}

// leaves [shards, count * width], zero.
void add_token_rows(const EmbeddingImpl& layer, const at::Tensor& tokens, const at::Tensor& out_grad, int shards,
                    const at::Tensor& leaves) {
  EmbeddingBackward call{.shards = shards,
                         .shard_rows = tokens.numel() / shards,
                         .count = layer.count(),
                         .padding_idx = layer.padding_idx().value_or(-1),
                         .width = static_cast<int>(layer.width()),
                         .tokens = tokens.const_data_ptr<int64_t>(),
                         .out_grad = {out_grad.const_data_ptr(), float_type(out_grad)},
                         .leaves = leaves.data_ptr<float>()};
  SortedTokens sorted;
  if (tokens.is_cuda()) {
    sorted = sort_tokens(tokens, shards, layer.count());
    call.sorted_keys = sorted.keys.const_data_ptr<int64_t>();
    call.sorted_rows = sorted.rows.const_data_ptr<int64_t>();
  }
  kernels_for<EmbeddingKernels>(out_grad).backward(call, stream_for(out_grad));
}

}  // namespace

struct EmbeddingFunction : torch::autograd::Function<EmbeddingFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& weight, const at::Tensor& tokens,
                            EmbeddingImpl* layer) {
    const WithoutAutocast plain;
    std::vector<int64_t> sizes = tokens.sizes().vec();
    sizes.push_back(layer->width());
    const at::Tensor w = weight.to(at::kFloat).contiguous();
    at::Tensor out = at::empty(sizes, w.options().requires_grad(false));
    const EmbeddingForward call{.rows = tokens.numel(),
                                .count = layer->count(),
                                .width = static_cast<int>(layer->width()),
                                .tokens = tokens.const_data_ptr<int64_t>(),
                                .weight = w.const_data_ptr<float>(),
                                .out = out.data_ptr<float>()};
    kernels_for<EmbeddingKernels>(w).forward(call, stream_for(w));
    ctx->save_for_backward({weight, tokens});
    ctx->saved_data["layer"] = reinterpret_cast<int64_t>(layer);
    ctx->saved_data["sums"] = reinterpret_cast<int64_t>(layer->pass().sums);
    ctx->saved_data["shards"] = static_cast<int64_t>(layer->pass().shards);
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const WithoutAutocast plain;
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &weight = saved[0], &tokens = saved[1], out_grad = grads[0].contiguous();
    const auto* const layer = reinterpret_cast<const EmbeddingImpl*>(ctx->saved_data["layer"].toInt());
    const auto shards = static_cast<int>(ctx->saved_data["shards"].toInt());
    layer->trace("gradient of the output", out_grad);
    auto* const sums = reinterpret_cast<LeafSums*>(ctx->saved_data["sums"].toInt());
    at::Tensor leaves = sums ? sums->so_far(weight) : at::Tensor();
    if (!leaves.defined())
      leaves = at::zeros({shards, layer->count() * layer->width()}, out_grad.options().dtype(at::kFloat));
    if (layer->one_by_one()) {
      const int64_t rows = tokens.size(0) / shards;
      for (int64_t shard = 0; shard < shards; ++shard)
        add_token_rows(*layer, tokens.narrow(0, shard * rows, rows), out_grad.narrow(0, shard * rows, rows), 1,
                       leaves.narrow(0, shard, 1));
    } else {
      add_token_rows(*layer, tokens, out_grad, shards, leaves);
    }
    if (!sums) return {leaves[0].view_as(weight), {}, {}};
    sums->add(weight, leaves);
    return {{}, {}, {}};
  }
};

EmbeddingImpl::EmbeddingImpl(int64_t count, int64_t width, std::optional<int64_t> padding_idx)
    : padding_idx_(padding_idx) {
  if (count < 1 || width < 1)
    throw ConfigError("an embedding of " + std::to_string(count) + " rows of width " + std::to_string(width),
                      "it needs at least one of each", "choose a count and a width of 1 or more");
  if (padding_idx && (*padding_idx < 0 || *padding_idx >= count))
    throw ConfigError(
        "an embedding of " + std::to_string(count) + " rows has padding_idx " + std::to_string(*padding_idx),
        "the padding is one of its rows", "choose it in [0, " + std::to_string(count) + ")");
  torch::nn::EmbeddingOptions torchs(count, width);
  if (padding_idx) torchs.padding_idx(*padding_idx);
  weight = register_parameter("weight", torch::nn::Embedding(torchs)->weight);
}

void EmbeddingImpl::refuse_bad_tokens(const at::Tensor& tokens) const {
  if (tokens.scalar_type() != at::kLong || tokens.dim() < 1)
    throw ConfigError(layer_name() + " (an embedding) was given tokens of type " + c10::toString(tokens.scalar_type()) +
                          " and shape " + c10::str(tokens.sizes()),
                      "tokens are int64, [rows, ...]", "convert them: tokens.to(at::kLong)");
  shard_rows(*this, tokens.size(0));
  if (tokens.is_cuda() || tokens.numel() == 0) return;
  const auto [lowest, highest] = at::aminmax(tokens);
  for (const int64_t token : {lowest.item<int64_t>(), highest.item<int64_t>()})
    if (token < 0 || token >= count())
      throw ConfigError(layer_name() + " (an embedding) was given the token " + std::to_string(token),
                        "it has " + std::to_string(count()) + " rows, for tokens from 0 on",
                        "look at the tokens of the data set, or make the embedding larger");
}

at::Tensor EmbeddingImpl::forward(const at::Tensor& tokens) {
  refuse_bad_tokens(tokens);
  if (at::GradMode::is_enabled() && pass().sums && weight.requires_grad()) pass().sums->expect(weight);
  const at::Tensor out = EmbeddingFunction::apply(weight, tokens.contiguous(), this);
  trace("output", out);
  return out;
}

}  // namespace tandem
