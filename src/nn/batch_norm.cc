#include "nn/batch_norm.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/errors.h"
#include "kernels/batch_norm_kernels.h"
#include "nn/kernel_choice.h"
#include "nn/shard_rows.h"

namespace tandem {
namespace {

// [N, C, ...] -> the dimensions to sum over, and the shape that broadcasts a [C] over it.
std::vector<int64_t> sum_dims(const at::Tensor& x) {
  std::vector<int64_t> dims{0};
  for (int64_t d = 2; d < x.dim(); ++d) dims.push_back(d);
  return dims;
}

at::Tensor per_channel(const at::Tensor& c, const at::Tensor& x) {
  std::vector<int64_t> shape(x.dim(), 1);
  shape[1] = c.size(0);
  return c.view(shape);
}

at::Tensor real_rows(const at::Tensor& x, int64_t rows) { return rows == x.size(0) ? x : x.narrow(0, 0, rows); }

// Sums over the batch of all shards. In double: a sum of squares in float would lose the variance to cancellation.
void all_reduce(LayerContext& context, at::Tensor& values) {
  at::Tensor host = values.cpu();  // itself, unless it is on a GPU
  context.all_reduce({host.data_ptr<double>(), static_cast<size_t>(host.numel())});
  if (!host.is_same(values)) values.copy_(host);
}

// In backward: gives them to the sums, or without these to autograd.
std::pair<at::Tensor, at::Tensor> give_leaves(torch::autograd::AutogradContext* ctx, const BatchNormImpl& layer,
                                              const at::Tensor& weight_leaves, const at::Tensor& bias_leaves) {
  auto* const sums = reinterpret_cast<LeafSums*>(ctx->saved_data["sums"].toInt());
  if (!sums) return {weight_leaves[0], bias_leaves[0]};
  if (layer.weight.requires_grad()) sums->add(layer.weight, weight_leaves);
  if (layer.bias.requires_grad()) sums->add(layer.bias, bias_leaves);
  return {};
}

void trace_norm(const BatchNormImpl& layer, const char* what, const at::Tensor& rows) {
  if (layer.pass().trace) layer.pass().trace->saw(layer, what, rows);
}

struct SyncBatchNorm : torch::autograd::Function<SyncBatchNorm> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, BatchNormImpl* layer) {
    LayerContext* const context = &layer->pass();
    const int64_t channels = x.size(1), rows = std::llround(x.size(0) * context->real);
    const at::Tensor real = real_rows(x, rows).to(at::kDouble);
    const auto dims = sum_dims(x);
    at::Tensor sums = at::empty({2 * channels + 1}, x.options().dtype(at::kDouble));
    sums.narrow(0, 0, channels).copy_(real.sum(dims));
    sums.narrow(0, channels, channels).copy_((real * real).sum(dims));
    sums[2 * channels].fill_(static_cast<double>(real.numel() / channels));
    all_reduce(*context, sums);
    // A micro-batch can be padding in every shard; then there is nothing to normalise by, and nothing that counts.
    const double count = std::max(sums[2 * channels].item<double>(), 1.0);
    const at::Tensor mean = sums.narrow(0, 0, channels) / count;
    const at::Tensor var = (sums.narrow(0, channels, channels) / count - mean * mean).clamp_min(0);
    // Every shard contributes its share of the same numbers, so that the sum over shards is the number itself.
    if (context->sums) {
      const at::Tensor unbiased = var * (count / std::max(count - 1, 1.0));
      context->sums->add_statistic(layer->running_mean, mean.to(at::kFloat).mul_(context->share).unsqueeze(0));
      context->sums->add_statistic(layer->running_var, unbiased.to(at::kFloat).mul_(context->share).unsqueeze(0));
    }
    const at::Tensor invstd = (var + layer->eps()).rsqrt();
    const at::Tensor xhat = (x - per_channel(mean.to(x.dtype()), x)) * per_channel(invstd.to(x.dtype()), x);
    ctx->save_for_backward({xhat, weight, invstd});
    ctx->saved_data["count"] = count;
    ctx->saved_data["rows"] = rows;
    ctx->saved_data["layer"] = reinterpret_cast<int64_t>(layer);
    ctx->saved_data["sums"] = reinterpret_cast<int64_t>(layer->pass().sums);
    return xhat * per_channel(weight, x) + per_channel(bias, x);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const WithoutAutocast plain;
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &xhat = saved[0], &weight = saved[1], &invstd = saved[2], &dy = grads[0];
    auto* const layer = reinterpret_cast<BatchNormImpl*>(ctx->saved_data["layer"].toInt());
    const double count = ctx->saved_data["count"].toDouble();
    const int64_t rows = ctx->saved_data["rows"].toInt(), channels = xhat.size(1);
    const auto dims = sum_dims(xhat);
    const at::Tensor local_bias = dy.sum(dims), local_weight = (dy * xhat).sum(dims);
    at::Tensor sums = at::empty({2 * channels}, dy.options().dtype(at::kDouble));
    sums.narrow(0, 0, channels).copy_(real_rows(dy, rows).to(at::kDouble).sum(dims));
    sums.narrow(0, channels, channels).copy_((real_rows(dy, rows) * real_rows(xhat, rows)).to(at::kDouble).sum(dims));
    all_reduce(layer->pass(), sums);
    const at::Tensor mean_dy = per_channel((sums.narrow(0, 0, channels) / count).to(dy.dtype()), dy);
    const at::Tensor mean_dy_xhat = per_channel((sums.narrow(0, channels, channels) / count).to(dy.dtype()), dy);
    const at::Tensor scale = per_channel((weight.to(at::kDouble) * invstd).to(dy.dtype()), dy);
    at::Tensor dx = scale * (dy - mean_dy - xhat * mean_dy_xhat);
    // Padding is in none of the sums, and nothing that counts depends on it.
    if (rows < dx.size(0)) dx.narrow(0, rows, dx.size(0) - rows).zero_();
    auto [weight_grad, bias_grad] = give_leaves(ctx, *layer, local_weight.unsqueeze(0), local_bias.unsqueeze(0));
    return {dx, weight_grad, bias_grad, {}};
  }
};

// The memory of a tensor [N, C, ...] as the kernels see it.
at::MemoryFormat norm_format(const at::Tensor& x) {
  if (x.is_contiguous()) return at::MemoryFormat::Contiguous;
  if (x.dim() == 4 && x.is_contiguous(at::MemoryFormat::ChannelsLast)) return at::MemoryFormat::ChannelsLast;
  if (x.dim() == 5 && x.is_contiguous(at::MemoryFormat::ChannelsLast3d)) return at::MemoryFormat::ChannelsLast3d;
  return at::MemoryFormat::Contiguous;
}

BatchNormShape norm_shape(const at::Tensor& x, int shards) {
  const int64_t channels = x.size(1), places = x.numel() / std::max<int64_t>(1, x.size(0) * channels);
  const bool rows_first = !x.is_contiguous();  // channels last
  return {shards, x.size(0) / shards * places, channels, rows_first ? 1 : places, float_type(x)};
}

// call(shape, first shard): once for all shards of the pass, or for each of them.
template <typename Call>
void run_shards(const BatchNormShape& all, bool one_by_one, const Call& call) {
  if (!one_by_one) return call(all, 0);
  BatchNormShape one = all;
  one.shards = 1;
  for (int shard = 0; shard < all.shards; ++shard) call(one, shard);
}

// Memory of shard `shard` on; null stays null.
const void* from_shard(const at::Tensor& x, const BatchNormShape& s, int shard) {
  if (!x.defined()) return nullptr;
  return static_cast<const char*>(x.const_data_ptr()) + shard * s.rows * s.channels * x.element_size();
}
void* from_shard(at::Tensor& x, const BatchNormShape& s, int shard) {
  return const_cast<void*>(from_shard(std::as_const(x), s, shard));
}
float* channels_of(const at::Tensor& x, int shard) { return x.data_ptr<float>() + shard * x.size(-1); }

struct BatchNormFunction : torch::autograd::Function<BatchNormFunction> {
  // `add` stands last: without it there is one input less, and needs_input_grad() counts those that are there.
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, const std::optional<at::Tensor>& added, BatchNormImpl* layer,
                            bool relu) {
    const at::Tensor add = added.value_or(at::Tensor());
    const LayerContext& pass = layer->pass();
    const BatchNormShape shape = norm_shape(x, pass.shards);
    const BatchNormKernels& kernels = kernels_for<BatchNormKernels>(x);
    const auto floats = x.options().dtype(at::kFloat).memory_format(at::MemoryFormat::Contiguous);
    const auto table = [&] { return at::empty({shape.shards, shape.channels}, floats); };
    at::Tensor mean = table(), inv_std = table(), mean_leaves = table(), var_leaves = table();
    at::Tensor scratch = at::empty({batch_norm_scratch_floats(shape)}, floats), y = at::empty_like(x);
    run_shards(shape, layer->one_by_one(), [&](const BatchNormShape& s, int shard) {
      kernels.statistics(s, from_shard(x, s, shard), static_cast<float>(layer->eps()), static_cast<float>(pass.share),
                         channels_of(mean, shard), channels_of(inv_std, shard), channels_of(mean_leaves, shard),
                         channels_of(var_leaves, shard), scratch.data_ptr<float>(), stream_for(x));
      kernels.forward(s, from_shard(x, s, shard), from_shard(add, s, shard), channels_of(mean, shard),
                      channels_of(inv_std, shard), weight.const_data_ptr<float>(), bias.const_data_ptr<float>(), relu,
                      from_shard(y, s, shard), stream_for(x));
    });
    if (pass.sums) {
      pass.sums->add_statistic(layer->running_mean, mean_leaves);
      pass.sums->add_statistic(layer->running_var, var_leaves);
    }
    ctx->saved_data["sums"] = reinterpret_cast<int64_t>(layer->pass().sums);
    ctx->save_for_backward({x, relu && add.defined() ? y : at::Tensor(), mean, inv_std, weight, bias});
    ctx->saved_data["layer"] = reinterpret_cast<int64_t>(layer);
    ctx->saved_data["shards"] = static_cast<int64_t>(shape.shards);
    ctx->saved_data["relu"] = relu;
    ctx->saved_data["add"] = add.defined();
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const WithoutAutocast plain;
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &y = saved[1], &mean = saved[2], &inv_std = saved[3], &weight = saved[4],
                     &bias = saved[5];
    const auto* const layer = reinterpret_cast<const BatchNormImpl*>(ctx->saved_data["layer"].toInt());
    const bool relu = ctx->saved_data["relu"].toBool();
    const bool x_wanted = ctx->needs_input_grad(0);
    const bool add_wanted = ctx->saved_data["add"].toBool() && ctx->needs_input_grad(3);
    const at::Tensor dy = grads[0].to(x.scalar_type()).contiguous(norm_format(x));
    trace_norm(*layer, "gradient of the output", dy);
    const BatchNormShape shape = norm_shape(x, static_cast<int>(ctx->saved_data["shards"].toInt()));
    const BatchNormKernels& kernels = kernels_for<BatchNormKernels>(x);
    at::Tensor weight_leaves = at::empty_like(mean), bias_leaves = at::empty_like(mean);
    at::Tensor scratch = at::empty({batch_norm_scratch_floats(shape)}, mean.options()), dx, dadd;
    if (x_wanted) dx = at::empty_like(x);
    if (add_wanted && relu) dadd = at::empty_like(x);
    run_shards(shape, layer->one_by_one(), [&](const BatchNormShape& s, int shard) {
      const BatchNormKernels::Backward given{from_shard(dy, s, shard),     from_shard(x, s, shard),
                                             from_shard(y, s, shard),      channels_of(mean, shard),
                                             channels_of(inv_std, shard),  weight.const_data_ptr<float>(),
                                             bias.const_data_ptr<float>(), relu};
      float *const weights = channels_of(weight_leaves, shard), *const biases = channels_of(bias_leaves, shard);
      kernels.backward_sums(s, given, weights, biases, scratch.data_ptr<float>(), stream_for(x));
      if (dx.defined() || dadd.defined())
        kernels.backward(s, given, weights, biases, from_shard(dx, s, shard), from_shard(dadd, s, shard),
                         stream_for(x));
    });
    if (dx.defined()) trace_norm(*layer, "gradient of the input", dx);
    if (add_wanted && !relu) dadd = dy;
    auto [weight_grad, bias_grad] = give_leaves(ctx, *layer, weight_leaves, bias_leaves);
    return {dx, weight_grad, bias_grad, dadd, {}, {}};
  }
};

at::Tensor after_norm(at::Tensor y, const BatchNormFused& fused) {
  if (fused.add.defined()) y = y + fused.add;
  return fused.relu ? at::relu(y) : y;
}

}  // namespace

BatchNormImpl::BatchNormImpl(int64_t channels, double eps) : channels_(channels), eps_(eps) {
  weight = register_parameter("weight", at::ones({channels}));
  bias = register_parameter("bias", at::zeros({channels}));
  running_mean = register_buffer("running_mean", at::zeros({channels}));
  running_var = register_buffer("running_var", at::ones({channels}));
}

void BatchNormImpl::refuse_bad_input(const at::Tensor& x, const at::Tensor& add) const {
  const auto sizes = [](const at::Tensor& t) { return c10::str(t.sizes()); };
  if (x.dim() < 2 || x.size(1) != channels_)
    throw ConfigError("batch norm '" + layer_name() + "' of " + std::to_string(channels_) +
                          " channels was given a tensor of " + sizes(x),
                      "it takes [rows, channels, ...]", "change the layer's channels, or what comes before it");
  if (add.defined() && !add.sizes().equals(x.sizes()))
    throw ConfigError(
        "batch norm '" + layer_name() + "' should add a tensor of " + sizes(add) + " to one of " + sizes(x),
        "the sum is element by element", "give both the same shape");
  if (!pass().training || pass().all_reduce) return;
  shard_rows(*this, x.size(0));
  if (x.numel() == channels_ * pass().shards)
    throw ConfigError("batch norm '" + layer_name() + "' has one value per channel to work with",
                      "one value has no variance; a shard's micro-batch is one row",
                      "use a larger batch_size, fewer shards, or sync_bn = true");
}

at::Tensor BatchNormImpl::running_inv_std() const { return (running_var + eps_).sqrt().reciprocal(); }

at::Tensor BatchNormImpl::forward(const at::Tensor& x, const BatchNormFused& fused) {
  refuse_bad_input(x, fused.add);
  const WithoutAutocast plain;
  LayerContext& now = pass();
  trace("input", x);
  if (now.training && now.sums && at::GradMode::is_enabled())
    for (const at::Tensor& parameter : {weight, bias})
      if (parameter.requires_grad()) now.sums->expect(parameter);
  at::Tensor y;
  if (!now.training) {
    y = after_norm(
        at::batch_norm(x, weight, bias, running_mean, running_var, /*training=*/false, 0, eps_, /*cudnn=*/false),
        fused);
  } else if (now.all_reduce) {
    y = after_norm(SyncBatchNorm::apply(x.to(at::kFloat), weight, bias, this).to(x.dtype()), fused);
  } else {
    const at::MemoryFormat format = norm_format(x);
    std::optional<at::Tensor> add;
    if (fused.add.defined()) add = fused.add.to(x.scalar_type()).contiguous(format);
    y = BatchNormFunction::apply(x.contiguous(format), weight, bias, add, this, fused.relu);
  }
  trace("output", y);
  return y;
}

}  // namespace tandem
