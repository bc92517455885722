#include "nn/multihead_attention.h"

#include <torch/torch.h>

#include "base/errors.h"

namespace tandem {

MultiheadAttentionImpl::MultiheadAttentionImpl(int64_t width, int64_t heads, const AttentionOptions& options)
    : in_proj_(nullptr), heads_(heads) {
  if (width < 1 || heads < 1 || width % heads != 0)
    throw ConfigError("an attention of width " + std::to_string(width) + " with " + std::to_string(heads) + " heads",
                      "each head has an equal part of the width", "choose a width that divides by the heads");
  in_proj_ = Linear(width, 3 * width);
  in_proj_weight = register_parameter("in_proj_weight", in_proj_->weight);
  in_proj_bias = register_parameter("in_proj_bias", in_proj_->bias);
  attention = register_module("attention", Attention(options));
  out_proj = register_module("out_proj", Linear(width, width));
  const torch::nn::MultiheadAttention torchs(torch::nn::MultiheadAttentionOptions(width, heads));
  const at::NoGradGuard no_grad;  // it begins as torch's
  in_proj_weight.copy_(torchs->in_proj_weight);
  in_proj_bias.copy_(torchs->in_proj_bias);
  out_proj->bias.copy_(torchs->out_proj->bias);
}

at::Tensor MultiheadAttentionImpl::project(const at::Tensor& x) {
  const int64_t width = in_proj_weight.size(1);
  if (x.dim() != 3 || x.size(2) != width)
    throw ConfigError(layer_name() + " (attention of width " + std::to_string(width) + ") was given an input of " +
                          c10::str(x.sizes()),
                      "it takes [rows, T, width]", "give it that shape");
  // The pass of this layer is that of the projection inside it. The tensors are the registered ones, wherever
  // they were moved to.
  in_proj_->weight = in_proj_weight;
  in_proj_->bias = in_proj_bias;
  auto context = std::make_shared<LayerContext>(pass());
  context->trace = nullptr;  // it knows the layers that it can find
  in_proj_->bind(std::move(context), layer_name() + ".in_proj");
  if (one_by_one()) in_proj_->use_one_by_one();
  trace("input", x);
  const at::Tensor qkv = in_proj_->forward(x).view({x.size(0), x.size(1), 3, heads_, width / heads_});
  trace("output", qkv);
  return qkv;
}

at::Tensor MultiheadAttentionImpl::forward(const at::Tensor& x, const at::Tensor& mask,
                                           const std::optional<RandomSource>& key) {
  return out_proj->forward(attention->forward_packed(project(x), mask, key));
}

at::Tensor MultiheadAttentionImpl::forward_last(const at::Tensor& x) {
  const std::vector<at::Tensor> part = project(x).unbind(2);  // [rows, T, heads, head size] each
  const at::Tensor last = part[0].narrow(1, x.size(1) - 1, 1).transpose(1, 2);
  const at::Tensor seen = attention->forward(last, part[1].transpose(1, 2), part[2].transpose(1, 2));
  return out_proj->forward(seen.reshape({x.size(0), x.size(2)}));
}

}  // namespace tandem
