#include "nn/first_block3d.h"

#include <torch/torch.h>

#include <cstring>
#include <string>

#include "kernels/first_block_kernels.h"
#include "nn/kernel_choice.h"
#include "nn/norm_pool3d.h"
#include "nn/shard_rows.h"

namespace tandem {
namespace {

bool are_all(const torch::ExpandingArray<3>& sizes, int64_t n) {
  return (*sizes)[0] == n && (*sizes)[1] == n && (*sizes)[2] == n;
}

struct FirstBlockFunction : torch::autograd::Function<FirstBlockFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& scale, const at::Tensor& shift, Conv3dImpl* conv, BatchNormImpl* norm) {
    const LayerContext& pass = norm->pass();
    const auto size = [&](int d) { return static_cast<int>(x.size(d)); };
    const FirstBlockShape shape{
        pass.shards,  x.size(0) / pass.shards, static_cast<int>(weight.size(0)), size(2), size(3), size(4),
        float_type(x)};
    const FirstBlockKernels& kernels = kernels_for<FirstBlockKernels>(x);
    const auto floats = x.options().dtype(at::kFloat);
    const auto table = [&] { return at::empty({shape.shards, shape.channels}, floats); };
    at::Tensor mean = table(), inv_std = table(), mean_leaves = table(), var_leaves = table();
    at::Tensor sums = at::empty({shape.shards, kTapSums}, x.options().dtype(at::kDouble));
    at::Tensor y = at::empty({x.size(0), shape.channels, shape.time, shape.out_h(), shape.out_w()},
                             x.options().memory_format(at::MemoryFormat::ChannelsLast3d));
    at::Tensor codes = at::empty({x.size(0) * shape.clip_out(), shape.code_words()}, x.options().dtype(at::kInt));
    {
      at::Tensor scratch = scratch_of(shape, x);
      kernels.tap_sums(shape, x.const_data_ptr(), sums.data_ptr<double>(), scratch.data_ptr<double>(), stream_for(x));
    }
    const at::Tensor w = weight.contiguous();
    kernels.statistics(shape, sums.const_data_ptr<double>(), w.const_data_ptr<float>(), static_cast<float>(norm->eps()),
                       static_cast<float>(pass.share), mean.data_ptr<float>(), inv_std.data_ptr<float>(),
                       mean_leaves.data_ptr<float>(), var_leaves.data_ptr<float>(), stream_for(x));
    kernels.forward(shape, x.const_data_ptr(), norm_of(w, mean, inv_std, scale, shift), y.data_ptr(),
                    reinterpret_cast<uint32_t*>(codes.data_ptr<int32_t>()), stream_for(x));
    if (pass.sums) {
      pass.sums->add_statistic(norm->running_mean, mean_leaves);
      pass.sums->add_statistic(norm->running_var, var_leaves);
    }
    ctx->save_for_backward({x, w, scale, shift, mean, inv_std, sums, codes});
    ctx->saved_data["conv"] = reinterpret_cast<int64_t>(conv);
    ctx->saved_data["norm"] = reinterpret_cast<int64_t>(norm);
    ctx->saved_data["sums"] = reinterpret_cast<int64_t>(pass.sums);
    ctx->saved_data["shape"] = std::string(reinterpret_cast<const char*>(&shape), sizeof shape);
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const WithoutAutocast plain;
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &w = saved[1], &scale = saved[2], &shift = saved[3], &mean = saved[4],
                     &inv_std = saved[5], &sums = saved[6], &codes = saved[7];
    FirstBlockShape shape;
    std::memcpy(&shape, ctx->saved_data["shape"].toStringRef().data(), sizeof shape);
    const auto* const conv = reinterpret_cast<const Conv3dImpl*>(ctx->saved_data["conv"].toInt());
    const auto* const norm = reinterpret_cast<const BatchNormImpl*>(ctx->saved_data["norm"].toInt());
    const at::Tensor dy = grads[0].to(x.scalar_type()).contiguous(at::MemoryFormat::ChannelsLast3d);
    if (norm->pass().trace) norm->pass().trace->saw(*norm, "gradient of the output", dy);
    const FirstBlockKernels& kernels = kernels_for<FirstBlockKernels>(x);
    at::Tensor gradients = at::empty({shape.shards, kTaps + 1, shape.channels}, sums.options());
    at::Tensor scratch = scratch_of(shape, x);
    kernels.gradient_sums(shape, x.const_data_ptr(), dy.const_data_ptr(),
                          reinterpret_cast<const uint32_t*>(codes.const_data_ptr<int32_t>()),
                          gradients.data_ptr<double>(), scratch.data_ptr<double>(), stream_for(x));
    at::Tensor weight_leaves = at::empty({shape.shards, shape.channels * kTaps}, mean.options());
    at::Tensor scale_leaves = at::empty_like(mean), shift_leaves = at::empty_like(mean);
    kernels.leaves(shape, sums.const_data_ptr<double>(), gradients.const_data_ptr<double>(),
                   norm_of(w, mean, inv_std, scale, shift), weight_leaves.data_ptr<float>(),
                   scale_leaves.data_ptr<float>(), shift_leaves.data_ptr<float>(), stream_for(x));
    auto* const to = reinterpret_cast<LeafSums*>(ctx->saved_data["sums"].toInt());
    if (!to) return {{}, weight_leaves[0].view(conv->weight.sizes()), scale_leaves[0], shift_leaves[0], {}, {}};
    // One input channel: a weight's memory is row by row in either format.
    if (conv->weight.requires_grad()) to->add(conv->weight, weight_leaves);
    if (norm->weight.requires_grad()) to->add(norm->weight, scale_leaves);
    if (norm->bias.requires_grad()) to->add(norm->bias, shift_leaves);
    return {{}, {}, {}, {}, {}, {}};
  }

 private:
  static FirstBlockKernels::Norm norm_of(const at::Tensor& w, const at::Tensor& mean, const at::Tensor& inv_std,
                                         const at::Tensor& scale, const at::Tensor& shift) {
    return {w.const_data_ptr<float>(), mean.const_data_ptr<float>(), inv_std.const_data_ptr<float>(),
            scale.const_data_ptr<float>(), shift.const_data_ptr<float>()};
  }
  static at::Tensor scratch_of(const FirstBlockShape& shape, const at::Tensor& x) {
    return at::empty({first_block_scratch(shape)}, x.options().dtype(at::kDouble));
  }
};

// Outside training, without gradients: the running statistics.
at::Tensor block_by_running(const Conv3dImpl& conv, const BatchNormImpl& norm, const at::Tensor& x) {
  const auto size = [&](int d) { return static_cast<int>(x.size(d)); };
  const FirstBlockShape shape{1,       x.size(0),    static_cast<int>(conv.weight.size(0)), size(2), size(3),
                              size(4), float_type(x)};
  const at::Tensor y = at::empty({x.size(0), shape.channels, shape.time, shape.out_h(), shape.out_w()},
                                 x.options().memory_format(at::MemoryFormat::ChannelsLast3d));
  const at::Tensor codes = at::empty({x.size(0) * shape.clip_out(), shape.code_words()}, x.options().dtype(at::kInt));
  const at::Tensor w = conv.weight.contiguous(), mean = norm.running_mean.contiguous(),
                   inv_std = norm.running_inv_std(), scale = norm.weight.contiguous(), shift = norm.bias.contiguous();
  kernels_for<FirstBlockKernels>(x).forward(
      shape, x.const_data_ptr(),
      {w.const_data_ptr<float>(), mean.const_data_ptr<float>(), inv_std.const_data_ptr<float>(),
       scale.const_data_ptr<float>(), shift.const_data_ptr<float>()},
      y.data_ptr(), reinterpret_cast<uint32_t*>(codes.data_ptr<int32_t>()), stream_for(x));
  return y;
}

}  // namespace

bool is_first_block(const Conv3dImpl& conv, const BatchNormImpl& norm, const MaxPool3dImpl& pool) {
  const Conv3dOptions& c = conv.options;
  const auto &box = *pool.options.kernel, &apart = *pool.options.stride;
  const bool pools =
      box[0] == 1 && box[1] == 2 && box[2] == 2 && are_all(pool.options.padding, 0) &&
      ((apart[0] == 0 && apart[1] == 0 && apart[2] == 0) || (apart[0] == 1 && apart[1] == 2 && apart[2] == 2));
  return c.in == 1 && c.out <= kMostFirstChannels && c.groups == 1 && !c.bias && are_all(c.kernel, 3) &&
         are_all(c.stride, 1) && are_all(c.padding, 1) && are_all(c.dilation, 1) && norm.channels() == c.out && pools;
}

at::Tensor first_block(Conv3dImpl& conv, BatchNormImpl& norm, MaxPool3dImpl& pool, const at::Tensor& clips) {
  LayerContext& now = norm.pass();
  const bool fits = clips.dim() == 5 && clips.size(1) == 1 && clips.size(2) >= 2 && clips.size(3) >= 2 &&
                    clips.size(4) >= 2 && clips.numel() > 0;
  const bool runs = now.training ? !now.all_reduce && !clips.requires_grad() : !at::GradMode::is_enabled();
  if (!runs || !fits || !is_first_block(conv, norm, pool)) return norm_relu_pool(norm, pool, conv.forward(clips));
  shard_rows(norm, clips.size(0));
  const at::ScalarType type = compute_type(clips);
  const WithoutAutocast plain;
  const at::Tensor x = clips.to(type).contiguous();
  if (!now.training) return block_by_running(conv, norm, x);
  if (now.trace) now.trace->saw(conv, "input", x);
  if (now.sums && at::GradMode::is_enabled())
    for (const at::Tensor& parameter : {conv.weight, norm.weight, norm.bias})
      if (parameter.requires_grad()) now.sums->expect(parameter);
  const at::Tensor y = FirstBlockFunction::apply(x, conv.weight, norm.weight, norm.bias, &conv, &norm);
  if (now.trace) now.trace->saw(norm, "output", y);
  return y;
}

}  // namespace tandem
