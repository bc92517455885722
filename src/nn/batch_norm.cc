#include "nn/batch_norm.h"

#include <torch/torch.h>

#include "base/errors.h"

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
void all_reduce(BatchNormContext& context, at::Tensor& values) {
  at::Tensor host = values.cpu();  // itself, unless it is on a GPU
  context.all_reduce({host.data_ptr<double>(), static_cast<size_t>(host.numel())});
  if (!host.is_same(values)) values.copy_(host);
}

struct SyncBatchNorm : torch::autograd::Function<SyncBatchNorm> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, BatchNormContext* context, at::Tensor sum_mean, at::Tensor sum_var,
                            double eps) {
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
    sum_mean.add_(mean.to(at::kFloat), context->share);
    sum_var.add_((var * (count / std::max(count - 1, 1.0))).to(at::kFloat), context->share);
    const at::Tensor invstd = (var + eps).rsqrt();
    const at::Tensor xhat = (x - per_channel(mean.to(x.dtype()), x)) * per_channel(invstd.to(x.dtype()), x);
    ctx->save_for_backward({xhat, weight, invstd});
    ctx->saved_data["count"] = count;
    ctx->saved_data["rows"] = rows;
    ctx->saved_data["context"] = reinterpret_cast<int64_t>(context);
    return xhat * per_channel(weight, x) + per_channel(bias, x);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &xhat = saved[0], &weight = saved[1], &invstd = saved[2], &dy = grads[0];
    auto* context = reinterpret_cast<BatchNormContext*>(ctx->saved_data["context"].toInt());
    const double count = ctx->saved_data["count"].toDouble();
    const int64_t rows = ctx->saved_data["rows"].toInt(), channels = xhat.size(1);
    const auto dims = sum_dims(xhat);
    const at::Tensor local_bias = dy.sum(dims), local_weight = (dy * xhat).sum(dims);
    at::Tensor sums = at::empty({2 * channels}, dy.options().dtype(at::kDouble));
    sums.narrow(0, 0, channels).copy_(real_rows(dy, rows).to(at::kDouble).sum(dims));
    sums.narrow(0, channels, channels).copy_((real_rows(dy, rows) * real_rows(xhat, rows)).to(at::kDouble).sum(dims));
    all_reduce(*context, sums);
    const at::Tensor mean_dy = per_channel((sums.narrow(0, 0, channels) / count).to(dy.dtype()), dy);
    const at::Tensor mean_dy_xhat = per_channel((sums.narrow(0, channels, channels) / count).to(dy.dtype()), dy);
    const at::Tensor scale = per_channel((weight.to(at::kDouble) * invstd).to(dy.dtype()), dy);
    at::Tensor dx = scale * (dy - mean_dy - xhat * mean_dy_xhat);
    // Padding is in none of the sums, and nothing that counts depends on it.
    if (rows < dx.size(0)) dx.narrow(0, rows, dx.size(0) - rows).zero_();
    return {dx, local_weight, local_bias, {}, {}, {}, {}};
  }
};

}  // namespace

BatchNormImpl::BatchNormImpl(int64_t channels, double eps) : channels_(channels), eps_(eps) {
  weight = register_parameter("weight", at::ones({channels}));
  bias = register_parameter("bias", at::zeros({channels}));
  running_mean = register_buffer("running_mean", at::zeros({channels}));
  running_var = register_buffer("running_var", at::ones({channels}));
}

at::Tensor BatchNormImpl::forward(const at::Tensor& x) {
  if (!context || !context->training)
    return at::batch_norm(x, weight, bias, running_mean, running_var, /*training=*/false, 0, eps_, /*cudnn=*/false);
  if (context->all_reduce)
    return SyncBatchNorm::apply(x.to(at::kFloat), weight, bias, context.get(), sum_mean, sum_var, eps_).to(x.dtype());
  if (x.numel() == channels_)
    throw ConfigError("batch norm has one value per channel to work with",
                      "one value has no variance; a shard's micro-batch is one row",
                      "use a larger batch_size, fewer shards, or sync_bn = true");
  // With momentum 1 the op stores the batch's own mean and (unbiased) variance.
  at::Tensor mean = at::zeros_like(running_mean), var = at::zeros_like(running_var);
  at::Tensor y = at::batch_norm(x, weight, bias, mean, var, /*training=*/true, 1.0, eps_, /*cudnn=*/false);
  at::NoGradGuard no_grad;
  sum_mean.add_(mean, context->share);
  sum_var.add_(var, context->share);
  return y;
}

}  // namespace tandem
