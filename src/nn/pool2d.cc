#include "nn/pool2d.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/errors.h"
#include "kernels/pool_kernels.h"
#include "nn/kernel_choice.h"
#include "nn/shard_rows.h"

namespace tandem {
namespace {

enum class PoolKind : int64_t { kMax, kMean, kImageMean };

at::MemoryFormat pool_format(const PoolShape& s) {
  return s.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

void trace_pool(const ShardAware& layer, const char* what, const at::Tensor& rows) {
  if (layer.pass().trace) layer.pass().trace->saw(layer, what, rows);
}

// call(shape, first image): once, or for each shard.
template <typename Call>
void run_pool(const PoolShape& all, int shards, bool one_by_one, const Call& call) {
  if (!one_by_one) return call(all, 0);
  PoolShape one = all;
  one.images = all.images / shards;
  for (int shard = 0; shard < shards; ++shard) call(one, shard * one.images);
}

char* image_of(const at::Tensor& images, int64_t image) {
  const int64_t bytes = images.numel() / std::max<int64_t>(1, images.size(0)) * images.element_size();
  return static_cast<char*>(images.data_ptr()) + image * bytes;
}

struct Pool2dFunction : torch::autograd::Function<Pool2dFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const PoolShape& shape,
                            PoolKind kind, const ShardAware* layer) {
    const PoolKernels& kernels = kernels_for<PoolKernels>(x);
    at::Tensor y = kind == PoolKind::kImageMean ? at::empty({shape.images, shape.channels}, x.options())
                                                : at::empty({shape.images, shape.channels, shape.out_h, shape.out_w},
                                                            x.options().memory_format(pool_format(shape)));
    at::Tensor places;
    if (kind == PoolKind::kMax) places = at::empty_like(y, y.options().dtype(at::kByte));
    run_pool(shape, layer->pass().shards, layer->one_by_one(), [&](const PoolShape& s, int64_t image) {
      const void* const from = image_of(x, image);
      void* const to = image_of(y, image);
      if (kind == PoolKind::kMax)
        kernels.max(s, from, to, reinterpret_cast<uint8_t*>(image_of(places, image)), stream_for(x));
      else
        (kind == PoolKind::kMean ? kernels.mean : kernels.image_mean)(s, from, to, stream_for(x));
    });
    ctx->save_for_backward({places});
    ctx->saved_data["layer"] = reinterpret_cast<int64_t>(layer);
    ctx->saved_data["kind"] = static_cast<int64_t>(kind);
    ctx->saved_data["shards"] = static_cast<int64_t>(layer->pass().shards);
    const auto* const bytes = reinterpret_cast<const char*>(&shape);
    ctx->saved_data["shape"] = std::string(bytes, sizeof shape);
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const WithoutAutocast plain;
    PoolShape shape;
    std::memcpy(&shape, ctx->saved_data["shape"].toStringRef().data(), sizeof shape);
    const auto kind = static_cast<PoolKind>(ctx->saved_data["kind"].toInt());
    const auto* const layer = reinterpret_cast<const ShardAware*>(ctx->saved_data["layer"].toInt());
    const at::Tensor places = ctx->get_saved_variables()[0];
    const at::Tensor dy =
        kind == PoolKind::kImageMean ? grads[0].contiguous() : grads[0].contiguous(pool_format(shape));
    trace_pool(*layer, "gradient of the output", dy);
    at::Tensor dx = at::empty({shape.images, shape.channels, shape.in_h, shape.in_w},
                              dy.options().memory_format(pool_format(shape)));
    const PoolKernels& kernels = kernels_for<PoolKernels>(dy);
    const int shards = static_cast<int>(ctx->saved_data["shards"].toInt());
    run_pool(shape, shards, layer->one_by_one(), [&](const PoolShape& s, int64_t image) {
      const void* const from = image_of(dy, image);
      void* const to = image_of(dx, image);
      if (kind == PoolKind::kMax)
        kernels.max_gradient(s, from, reinterpret_cast<const uint8_t*>(image_of(places, image)), to, stream_for(dy));
      else
        (kind == PoolKind::kMean ? kernels.mean_gradient : kernels.image_mean_gradient)(s, from, to, stream_for(dy));
    });
    trace_pool(*layer, "gradient of the input", dx);
    return {dx, {}, {}, {}};
  }
};

std::array<int64_t, 2> pool_strides(const Pool2dOptions& o) {
  const auto &stride = *o.stride, &kernel = *o.kernel;
  return {stride[0] == 0 ? kernel[0] : stride[0], stride[1] == 0 ? kernel[1] : stride[1]};
}

void refuse_bad_pool(const char* kind, const Pool2dOptions& o, int64_t most_places) {
  const std::array<int64_t, 2> kernel = *o.kernel, stride = pool_strides(o), padding = *o.padding;
  for (const size_t d : {0, 1})
    if (kernel[d] < 1 || stride[d] < 1 || padding[d] < 0 || 2 * padding[d] > kernel[d])
      throw ConfigError(fmt::format("{} with a kernel of {}, a stride of {} and a padding of {}", kind,
                                    fmt::join(kernel, " x "), fmt::join(stride, " x "), fmt::join(padding, " x ")),
                        "kernel and stride are numbers from 1 up, the padding is at most half of the kernel",
                        "change these sizes");
  if (kernel[0] * kernel[1] > most_places)
    throw ConfigError(
        fmt::format("{} with a kernel of {}: {} places", kind, fmt::join(kernel, " x "), kernel[0] * kernel[1]),
        fmt::format("a window has at most {} places", most_places),
        "use a smaller kernel, two pools in a row, or x.amax({2, 3}) for the whole image");
}

at::Tensor run_pool_layer(const at::Tensor& given, PoolKind kind, const Pool2dOptions* options,
                          const ShardAware& layer) {
  if (given.dim() != 4)
    throw ConfigError(
        fmt::format("{} (a pool) was given an input of [{}]", layer.layer_name(), fmt::join(given.sizes(), ", ")),
        "it takes images: [rows, channels, height, width]", "give it four dimensions");
  shard_rows(layer, given.size(0));
  const bool last = !given.is_contiguous() && given.is_contiguous(at::MemoryFormat::ChannelsLast);
  PoolShape s{};
  s.images = given.size(0), s.channels = given.size(1);
  s.in_h = static_cast<int>(given.size(2)), s.in_w = static_cast<int>(given.size(3));
  s.channels_last = last;
  s.type = float_type(given);
  if (options) {
    const std::array<int64_t, 2> kernel = *options->kernel, stride = pool_strides(*options);
    const auto padding = *options->padding;
    s.kernel_h = static_cast<int>(kernel[0]), s.kernel_w = static_cast<int>(kernel[1]);
    s.stride_h = static_cast<int>(stride[0]), s.stride_w = static_cast<int>(stride[1]);
    s.pad_h = static_cast<int>(padding[0]), s.pad_w = static_cast<int>(padding[1]);
    s.count_padding = options->count_padding;
    s.out_h = (s.in_h + 2 * s.pad_h - s.kernel_h) / s.stride_h + 1;
    s.out_w = (s.in_w + 2 * s.pad_w - s.kernel_w) / s.stride_w + 1;
    if (s.in_h + 2 * s.pad_h < s.kernel_h || s.in_w + 2 * s.pad_w < s.kernel_w)
      throw ConfigError(fmt::format("{} has a kernel of {} x {}, and images of {} x {}", layer.layer_name(), s.kernel_h,
                                    s.kernel_w, s.in_h, s.in_w),
                        "the kernel is larger than the image with its padding",
                        "use a smaller kernel or larger images");
  } else if (s.in_h * s.in_w == 0) {
    throw ConfigError(layer.layer_name() + " was given images without a pixel", "there is no mean of nothing",
                      "look at the layers before it: a stride or kernel is too large for these images");
  }
  trace_pool(layer, "input", given);
  const at::Tensor x = last ? given : given.contiguous();
  const at::Tensor y = Pool2dFunction::apply(x, s, kind, &layer);
  trace_pool(layer, "output", y);
  return y;
}

}  // namespace

MaxPool2dImpl::MaxPool2dImpl(const Pool2dOptions& given) : options(given) {
  refuse_bad_pool("a max pool", given, kMaxPoolWindow);
}
at::Tensor MaxPool2dImpl::forward(const at::Tensor& x) { return run_pool_layer(x, PoolKind::kMax, &options, *this); }

AvgPool2dImpl::AvgPool2dImpl(const Pool2dOptions& given) : options(given) {
  refuse_bad_pool("an average pool", given, int64_t{1} << 24);
}
at::Tensor AvgPool2dImpl::forward(const at::Tensor& x) { return run_pool_layer(x, PoolKind::kMean, &options, *this); }

at::Tensor GlobalAvgPool2dImpl::forward(const at::Tensor& x) {
  return run_pool_layer(x, PoolKind::kImageMean, nullptr, *this);
}

}  // namespace tandem
