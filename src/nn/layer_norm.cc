#include "nn/layer_norm.h"

#include <torch/torch.h>

#include "base/errors.h"
#include "kernels/norm_kernels.h"
#include "nn/kernel_choice.h"
#include "nn/shard_rows.h"

namespace tandem {
namespace {

// The calls for one shard after the other.
void norm_each_shard(const LayerNormKernels& kernels, const LayerNormForwardCall& all, int shards, void* stream) {
  const int64_t rows = all.rows / shards, elements = rows * all.width;
  for (int64_t shard = 0; shard < shards; ++shard) {
    LayerNormForwardCall one = all;
    one.rows = rows;
    one.x = from_element(all.x, shard * elements);
    one.residual = from_element(all.residual, shard * elements);
    one.sum = from_element(all.sum, shard * elements);
    one.out = from_element(all.out, shard * elements);
    one.mean += shard * rows;
    one.rstd += shard * rows;
    kernels.forward(one, stream);
  }
}

void norm_each_shard(const LayerNormKernels& kernels, const LayerNormBackwardCall& all, void* stream) {
  const int64_t elements = all.shard_rows * all.width;
  for (int64_t shard = 0; shard < all.shards; ++shard) {
    LayerNormBackwardCall one = all;
    one.shards = 1;
    one.sum = from_element(all.sum, shard * elements);
    one.out_grad = from_element(all.out_grad, shard * elements);
    one.sum_grad = from_element(all.sum_grad, shard * elements);
    one.grad = from_element(all.grad, shard * elements);
    one.second_grad = from_element(all.second_grad, shard * elements);
    one.mean += shard * all.shard_rows;
    one.rstd += shard * all.shard_rows;
    if (one.weight_leaves) one.weight_leaves += shard * all.width;
    if (one.bias_leaves) one.bias_leaves += shard * all.width;
    kernels.backward(one, stream);
  }
}

}  // namespace

struct LayerNormFunction : torch::autograd::Function<LayerNormFunction> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x_in,
                                                const std::optional<at::Tensor>& with, const at::Tensor& weight,
                                                const at::Tensor& bias, LayerNormImpl* layer) {
    const at::ScalarType out_type = compute_type(x_in);
    const WithoutAutocast plain;
    const bool adds = with.has_value();
    const at::Tensor x = x_in.contiguous(), residual = adds ? with->contiguous() : at::Tensor();
    const at::ScalarType sum_type = adds ? at::promote_types(x.scalar_type(), residual.scalar_type()) : x.scalar_type();
    const int64_t rows = x.numel() / layer->width();
    at::Tensor sum = adds ? at::empty(x.sizes(), x.options().dtype(sum_type)) : x;
    at::Tensor out = at::empty(x.sizes(), x.options().dtype(out_type));
    at::Tensor statistics = at::empty({2, rows}, x.options().dtype(at::kFloat));
    const at::Tensor w = weight.to(at::kFloat).contiguous(), b = bias.to(at::kFloat).contiguous();
    LayerNormForwardCall call{.rows = rows,
                              .width = static_cast<int>(layer->width()),
                              .eps = static_cast<float>(layer->eps()),
                              .x = {x.const_data_ptr(), float_type(x)},
                              .residual = {},
                              .weight = w.const_data_ptr<float>(),
                              .bias = b.const_data_ptr<float>(),
                              .sum = {},
                              .out = {out.data_ptr(), float_type(out)},
                              .mean = statistics.data_ptr<float>(),
                              .rstd = statistics.data_ptr<float>() + rows};
    if (adds) {
      call.residual = {residual.const_data_ptr(), float_type(residual)};
      call.sum = {sum.data_ptr(), float_type(sum)};
    }
    if (layer->one_by_one())
      norm_each_shard(kernels_for<LayerNormKernels>(x), call, layer->pass().shards, stream_for(x));
    else
      kernels_for<LayerNormKernels>(x).forward(call, stream_for(x));
    ctx->save_for_backward({sum, statistics, weight, bias});
    ctx->saved_data["layer"] = reinterpret_cast<int64_t>(layer);
    ctx->saved_data["sums"] = reinterpret_cast<int64_t>(layer->pass().sums);
    ctx->saved_data["shards"] = static_cast<int64_t>(layer->pass().shards);
    ctx->saved_data["x type"] = static_cast<int64_t>(x.scalar_type());
    ctx->saved_data["residual type"] = static_cast<int64_t>(adds ? residual.scalar_type() : x.scalar_type());
    ctx->set_materialize_grads(false);
    if (adds) return {out, sum};
    return {out};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const WithoutAutocast plain;
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &sum = saved[0], &weight = saved[2], &bias = saved[3];
    const auto* const layer = reinterpret_cast<const LayerNormImpl*>(ctx->saved_data["layer"].toInt());
    const bool adds = grads.size() > 1;
    const at::Tensor out_grad = grads[0].defined() ? grads[0].contiguous() : at::zeros_like(sum);
    layer->trace("gradient of the output", out_grad);
    Gradients found;
    if (ctx->needs_input_grad(0) || (adds && ctx->needs_input_grad(1))) {
      const auto empty = [&](const char* type) {
        return at::empty(sum.sizes(), sum.options().dtype(static_cast<at::ScalarType>(ctx->saved_data[type].toInt())));
      };
      found.x = empty("x type");
      found.residual = ctx->saved_data["residual type"] == ctx->saved_data["x type"] ? found.x : empty("residual type");
    }
    const auto shards = static_cast<int>(ctx->saved_data["shards"].toInt());
    if (weight.requires_grad() || bias.requires_grad()) {
      found.weight_leaves = at::empty({shards, layer->width()}, sum.options().dtype(at::kFloat));
      found.bias_leaves = at::empty_like(found.weight_leaves);
    }
    run_backward(saved, shards, layer->one_by_one(), out_grad,
                 adds && grads[1].defined() ? grads[1].contiguous() : at::Tensor(), found);
    if (found.x.defined()) layer->trace("gradient of the input", found.x);
    at::Tensor weight_grad, bias_grad;
    if (auto* const sums = reinterpret_cast<LeafSums*>(ctx->saved_data["sums"].toInt())) {
      if (weight.requires_grad()) sums->add(weight, found.weight_leaves);
      if (bias.requires_grad()) sums->add(bias, found.bias_leaves);
    } else if (found.weight_leaves.defined()) {
      weight_grad = found.weight_leaves[0].view_as(weight);
      bias_grad = found.bias_leaves[0].view_as(bias);
    }
    return {found.x, adds ? found.residual : at::Tensor(), weight_grad, bias_grad, {}};
  }

  struct Gradients {
    at::Tensor x, residual;  // undefined: not wanted; one tensor where their types are equal
    at::Tensor weight_leaves, bias_leaves;
  };
  static void run_backward(const torch::autograd::variable_list& saved, int shards, bool one_by_one,
                           const at::Tensor& out_grad, const at::Tensor& sum_grad, Gradients& found) {
    const at::Tensor &sum = saved[0], &statistics = saved[1];
    const int64_t width = sum.size(-1), rows = sum.numel() / width;
    const at::Tensor w = saved[2].to(at::kFloat).contiguous();
    LayerNormBackwardCall call{.shards = shards,
                               .shard_rows = rows / shards,
                               .width = static_cast<int>(width),
                               .sum = {sum.const_data_ptr(), float_type(sum)},
                               .out_grad = {out_grad.const_data_ptr(), float_type(out_grad)},
                               .sum_grad = {},
                               .weight = w.const_data_ptr<float>(),
                               .mean = statistics.const_data_ptr<float>(),
                               .rstd = statistics.const_data_ptr<float>() + rows,
                               .grad = {},
                               .second_grad = {}};
    if (sum_grad.defined()) call.sum_grad = {sum_grad.const_data_ptr(), float_type(sum_grad)};
    if (found.x.defined()) call.grad = {found.x.data_ptr(), float_type(found.x)};
    if (found.x.defined() && !found.residual.is_same(found.x))
      call.second_grad = {found.residual.data_ptr(), float_type(found.residual)};
    at::Tensor scratch;
    if (found.weight_leaves.defined()) {
      scratch = at::empty({layer_norm_scratch(shards, call.shard_rows, call.width)}, found.weight_leaves.options());
      call.weight_leaves = found.weight_leaves.data_ptr<float>();
      call.bias_leaves = found.bias_leaves.data_ptr<float>();
      call.scratch = scratch.data_ptr<float>();
    }
    if (one_by_one)
      norm_each_shard(kernels_for<LayerNormKernels>(sum), call, stream_for(sum));
    else
      kernels_for<LayerNormKernels>(sum).backward(call, stream_for(sum));
  }
};

LayerNormImpl::LayerNormImpl(int64_t width, double eps) : width_(width), eps_(eps) {
  if (width < 1 || width > kMaxNormWidth)
    throw ConfigError("a layer norm of width " + std::to_string(width),
                      "its kernels keep a row in registers: 1 to " + std::to_string(kMaxNormWidth) + " columns",
                      "choose a width in that range, or use torch::nn::LayerNorm, which runs shard by shard");
  weight = register_parameter("weight", at::ones({width}));
  bias = register_parameter("bias", at::zeros({width}));
}

void LayerNormImpl::refuse_bad_input(const at::Tensor& x) const {
  if (x.dim() < 2 || x.size(-1) != width_)
    throw ConfigError(layer_name() + " (layer norm of width " + std::to_string(width_) + ") was given an input of " +
                          c10::str(x.sizes()),
                      "it normalises the last dimension of [rows, ..., width]",
                      "give it that shape, or make the layer with the width of the input");
  shard_rows(*this, x.size(0));
}

void LayerNormImpl::expect_leaves() const {
  LeafSums* const sums = at::GradMode::is_enabled() ? pass().sums : nullptr;
  if (sums && weight.requires_grad()) sums->expect(weight);
  if (sums && bias.requires_grad()) sums->expect(bias);
}

at::Tensor LayerNormImpl::forward(const at::Tensor& x) {
  refuse_bad_input(x);
  trace("input", x);
  expect_leaves();
  const at::Tensor out = LayerNormFunction::apply(x, std::optional<at::Tensor>(), weight, bias, this)[0];
  trace("output", out);
  return out;
}

LayerNormImpl::Sum LayerNormImpl::forward_residual(const at::Tensor& x, const at::Tensor& residual) {
  refuse_bad_input(x);
  if (residual.sizes() != x.sizes())
    throw ConfigError(layer_name() + " was given an input of " + c10::str(x.sizes()) + " and a residual of " +
                          c10::str(residual.sizes()),
                      "they are added, number by number", "give it two tensors of one shape");
  trace("input", x);
  expect_leaves();
  const auto found = LayerNormFunction::apply(x, std::optional<at::Tensor>(residual), weight, bias, this);
  trace("output", found[0]);
  return {found[1], found[0]};
}

}  // namespace tandem
