#include "nn/norm_pool3d.h"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "kernels/norm_pool_kernels.h"
#include "nn/kernel_choice.h"
#include "nn/shard_rows.h"

namespace tandem {
namespace {

constexpr auto kClipsLast = at::MemoryFormat::ChannelsLast3d;

void trace_fused(const BatchNormImpl& layer, const char* what, const at::Tensor& rows) {
  if (layer.pass().trace) layer.pass().trace->saw(layer, what, rows);
}

NormPoolShape norm_pool_shape(const at::Tensor& x, int shards, const std::array<int64_t, 3>& box) {
  const auto size = [&](int d) { return static_cast<int>(x.size(d)); };
  return {shards,
          x.size(0) / shards,
          x.size(1),
          {size(2), size(3), size(4)},
          {static_cast<int>(box[0]), static_cast<int>(box[1]), static_cast<int>(box[2])},
          float_type(x)};
}

// call(shape, first shard): once for all shards of the pass, or for each of them.
template <typename Call>
void run_pool_shards(const NormPoolShape& all, bool one_by_one, const Call& call) {
  if (!one_by_one) return call(all, 0);
  NormPoolShape one = all;
  one.shards = 1;
  for (int shard = 0; shard < all.shards; ++shard) call(one, shard);
}
// Memory of shard `shard` on, of what has `numbers` of them in a shard.
template <typename T = void>
T* from_shard_of(const at::Tensor& x, int shard, int64_t numbers) {
  return reinterpret_cast<T*>(static_cast<char*>(x.data_ptr()) + shard * numbers * x.element_size());
}

struct NormPoolFunction : torch::autograd::Function<NormPoolFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, BatchNormImpl* layer, const NormPoolShape& shape) {
    const LayerContext& pass = layer->pass();
    const auto floats = x.options().dtype(at::kFloat).memory_format(at::MemoryFormat::Contiguous);
    const auto table = [&] { return at::empty({shape.shards, shape.channels}, floats); };
    at::Tensor mean = table(), inv_std = table(), mean_leaves = table(), var_leaves = table();
    at::Tensor scratch = at::empty({batch_norm_scratch_floats(shape.inputs())}, floats);
    at::Tensor y = at::empty({x.size(0), shape.channels, shape.out(0), shape.out(1), shape.out(2)},
                             x.options().memory_format(kClipsLast));
    at::Tensor codes = at::empty({x.size(0) * shape.clip_out(), shape.code_words()}, floats.dtype(at::kInt));
    const BatchNormKernels& norms = kernels_for<BatchNormKernels>(x);
    const NormPoolKernels& kernels = kernels_for<NormPoolKernels>(x);
    run_pool_shards(shape, layer->one_by_one(), [&](const NormPoolShape& s, int shard) {
      const Places at(s);
      const auto channels = [&](const at::Tensor& t) { return from_shard_of<float>(t, shard, s.channels); };
      norms.statistics(s.inputs(), from_shard_of(x, shard, at.in), static_cast<float>(layer->eps()),
                       static_cast<float>(pass.share), channels(mean), channels(inv_std), channels(mean_leaves),
                       channels(var_leaves), scratch.data_ptr<float>(), stream_for(x));
      kernels.forward(s, given_of(at, shard, x, mean, inv_std, weight, bias), from_shard_of(y, shard, at.out),
                      from_shard_of<uint32_t>(codes, shard, at.codes), stream_for(x));
    });
    if (pass.sums) {
      pass.sums->add_statistic(layer->running_mean, mean_leaves);
      pass.sums->add_statistic(layer->running_var, var_leaves);
    }
    ctx->save_for_backward({x, codes, mean, inv_std, weight, bias});
    ctx->saved_data["layer"] = reinterpret_cast<int64_t>(layer);
    ctx->saved_data["sums"] = reinterpret_cast<int64_t>(pass.sums);
    ctx->saved_data["shape"] = std::string(reinterpret_cast<const char*>(&shape), sizeof shape);
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const WithoutAutocast plain;
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &codes = saved[1], &mean = saved[2], &inv_std = saved[3];
    NormPoolShape shape;
    std::memcpy(&shape, ctx->saved_data["shape"].toStringRef().data(), sizeof shape);
    const auto* const layer = reinterpret_cast<const BatchNormImpl*>(ctx->saved_data["layer"].toInt());
    const at::Tensor dy = grads[0].to(x.scalar_type()).contiguous(kClipsLast);
    trace_fused(*layer, "gradient of the output", dy);
    const NormPoolKernels& kernels = kernels_for<NormPoolKernels>(x);
    at::Tensor weight_leaves = at::empty_like(mean), bias_leaves = at::empty_like(mean), dx;
    at::Tensor scratch = at::empty({batch_norm_scratch_floats(shape.outputs())}, mean.options());
    if (ctx->needs_input_grad(0)) dx = at::empty_like(x);
    run_pool_shards(shape, layer->one_by_one(), [&](const NormPoolShape& s, int shard) {
      const Places at(s);
      const NormPoolKernels::Given given = given_of(at, shard, x, mean, inv_std, saved[4], saved[5]);
      const void* const y_grad = from_shard_of(dy, shard, at.out);
      const auto* const code = from_shard_of<uint32_t>(codes, shard, at.codes);
      float *const weights = from_shard_of<float>(weight_leaves, shard, s.channels), *const biases =
                                                                                         from_shard_of<float>(
                                                                                             bias_leaves, shard,
                                                                                             s.channels);
      kernels.backward_sums(s, given, y_grad, code, weights, biases, scratch.data_ptr<float>(), stream_for(x));
      if (dx.defined())
        kernels.backward(s, given, y_grad, code, weights, biases, from_shard_of(dx, shard, at.in), stream_for(x));
    });
    if (dx.defined()) trace_fused(*layer, "gradient of the input", dx);
    auto* const sums = reinterpret_cast<LeafSums*>(ctx->saved_data["sums"].toInt());
    if (!sums) return {dx, weight_leaves[0], bias_leaves[0], {}, {}};
    if (layer->weight.requires_grad()) sums->add(layer->weight, weight_leaves);
    if (layer->bias.requires_grad()) sums->add(layer->bias, bias_leaves);
    return {dx, {}, {}, {}, {}};
  }

 private:
  // Numbers of a shard.
  struct Places {
    int64_t in, out, codes;
    explicit Places(const NormPoolShape& s)
        : in(s.inputs().rows * s.channels),
          out(s.outputs().rows * s.channels),
          codes(s.outputs().rows * s.code_words()) {}
  };
  static NormPoolKernels::Given given_of(const Places& at, int shard, const at::Tensor& x, const at::Tensor& mean,
                                         const at::Tensor& inv_std, const at::Tensor& weight, const at::Tensor& bias) {
    const int64_t channels = mean.size(1);
    return {from_shard_of(x, shard, at.in), from_shard_of<float>(mean, shard, channels),
            from_shard_of<float>(inv_std, shard, channels), weight.const_data_ptr<float>(),
            bias.const_data_ptr<float>()};
  }
};

// Without overlap, padding and gaps, and in 3 bits.
bool is_box_pool(const MaxPool3dImpl& pool) {
  const auto &kernel = *pool.options.kernel, &stride = *pool.options.stride, &padding = *pool.options.padding;
  for (size_t d = 0; d < 3; ++d)
    if ((stride[d] != 0 && stride[d] != kernel[d]) || padding[d] != 0) return false;
  return kernel[0] * kernel[1] * kernel[2] <= kMostBoxPlaces;
}

// Outside training, without gradients: the running statistics, and no code is kept.
at::Tensor pool_by_running(const BatchNormImpl& norm, const at::Tensor& x, const NormPoolShape& shape) {
  const at::Tensor y = at::empty({x.size(0), shape.channels, shape.out(0), shape.out(1), shape.out(2)},
                                 x.options().memory_format(kClipsLast));
  const at::Tensor codes = at::empty({x.size(0) * shape.clip_out(), shape.code_words()},
                                     x.options().dtype(at::kInt).memory_format(at::MemoryFormat::Contiguous));
  const at::Tensor mean = norm.running_mean.contiguous(), inv_std = norm.running_inv_std();
  const at::Tensor weight = norm.weight.contiguous(), bias = norm.bias.contiguous();
  kernels_for<NormPoolKernels>(x).forward(
      shape,
      {x.const_data_ptr(), mean.const_data_ptr<float>(), inv_std.const_data_ptr<float>(),
       weight.const_data_ptr<float>(), bias.const_data_ptr<float>()},
      y.data_ptr(), reinterpret_cast<uint32_t*>(codes.data_ptr<int32_t>()), stream_for(x));
  return y;
}

}  // namespace

at::Tensor norm_relu_pool(BatchNormImpl& norm, MaxPool3dImpl& pool, const at::Tensor& x) {
  LayerContext& now = norm.pass();
  const auto& box = *pool.options.kernel;
  const bool whole = x.dim() == 5 && x.size(2) >= box[0] && x.size(3) >= box[1] && x.size(4) >= box[2];
  const bool runs = now.training ? !now.all_reduce : !at::GradMode::is_enabled();
  if (!runs || !is_box_pool(pool) || !whole) return pool.forward(norm.forward(x, {.relu = true}));
  norm.refuse_bad_input(x);
  const WithoutAutocast plain;
  if (!now.training) {
    const at::Tensor rows = x.contiguous(kClipsLast);
    return pool_by_running(norm, rows, norm_pool_shape(rows, 1, box));
  }
  trace_fused(norm, "input", x);
  if (now.sums && at::GradMode::is_enabled())
    for (const at::Tensor& parameter : {norm.weight, norm.bias})
      if (parameter.requires_grad()) now.sums->expect(parameter);
  const at::Tensor y = NormPoolFunction::apply(x.contiguous(kClipsLast), norm.weight, norm.bias, &norm,
                                               norm_pool_shape(x, now.shards, box));
  trace_fused(norm, "output", y);
  return y;
}

}  // namespace tandem
