#include "nn/pool3d.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "base/errors.h"

namespace tandem {
namespace {

bool are_volumes_last(const at::Tensor& x) {
  return !x.is_contiguous() && x.is_contiguous(at::MemoryFormat::ChannelsLast3d);
}

// Clips [N, C, T, H, W] as images [n, c, h, w] over the same memory, and images back as clips [N, C, T', H', W'].
at::Tensor frames_of(const at::Tensor& x) {
  const int64_t n = x.size(0), c = x.size(1), t = x.size(2), h = x.size(3), w = x.size(4);
  if (are_volumes_last(x)) return x.permute({0, 2, 3, 4, 1}).view({n * t, h, w, c}).permute({0, 3, 1, 2});
  return x.contiguous().view({n, c * t, h, w});
}
at::Tensor clips_of_frames(const at::Tensor& images, const at::Tensor& x) {
  const int64_t n = x.size(0), c = x.size(1), t = x.size(2), h = images.size(2), w = images.size(3);
  if (are_volumes_last(x)) return images.permute({0, 2, 3, 1}).view({n, t, h, w, c}).permute({0, 4, 1, 2, 3});
  return images.view({n, c, t, h, w});
}
// Rows of an image are times, columns are places.
at::Tensor times_of(const at::Tensor& x) {
  const int64_t n = x.size(0), c = x.size(1), t = x.size(2), places = x.size(3) * x.size(4);
  if (are_volumes_last(x)) return x.permute({0, 2, 3, 4, 1}).view({n, t, places, c}).permute({0, 3, 1, 2});
  return x.contiguous().view({n, c, t, places});
}
at::Tensor clips_of_times(const at::Tensor& images, const at::Tensor& x) {
  const int64_t n = x.size(0), c = x.size(1), t = images.size(2), h = x.size(3), w = x.size(4);
  if (are_volumes_last(x)) return images.permute({0, 2, 3, 1}).view({n, t, h, w, c}).permute({0, 4, 1, 2, 3});
  return images.view({n, c, t, h, w});
}

void refuse_no_clip(const ShardAware& layer, const at::Tensor& x) {
  if (x.dim() != 5)
    throw ConfigError(
        fmt::format("{} (a 3D pool) was given an input of [{}]", layer.layer_name(), fmt::join(x.sizes(), ", ")),
        "it takes clips: [rows, channels, time, height, width]", "give it five dimensions");
}

using PoolSizes = std::array<int64_t, 3>;
PoolSizes strides_of(const Pool3dOptions& o) {
  PoolSizes strides = *o.stride;
  for (size_t d = 0; d < 3; ++d)
    if (strides[d] == 0) strides[d] = (*o.kernel)[d];
  return strides;
}
torch::ExpandingArray<2> pair_of(int64_t a, int64_t b) { return torch::ExpandingArray<2>({a, b}); }

}  // namespace

MaxPool3dImpl::MaxPool3dImpl(const Pool3dOptions& given) : options(given) {
  const PoolSizes kernel = *given.kernel, stride = strides_of(given), padding = *given.padding;
  if (kernel[0] < 1 || stride[0] < 1 || padding[0] < 0 || 2 * padding[0] > kernel[0])
    throw ConfigError(fmt::format("a 3D max pool with a kernel of {}, a stride of {} and a padding of {}",
                                  fmt::join(kernel, " x "), fmt::join(stride, " x "), fmt::join(padding, " x ")),
                      "kernel and stride are numbers from 1 up, the padding is at most half of the kernel",
                      "change these sizes");
  if (kernel[1] != 1 || kernel[2] != 1 || stride[1] != 1 || stride[2] != 1)
    space_ = register_module("space", MaxPool2d(Pool2dOptions{.kernel = pair_of(kernel[1], kernel[2]),
                                                              .stride = pair_of(stride[1], stride[2]),
                                                              .padding = pair_of(padding[1], padding[2])}));
  if (kernel[0] != 1 || stride[0] != 1)
    time_ = register_module("time", MaxPool2d(Pool2dOptions{.kernel = pair_of(kernel[0], 1),
                                                            .stride = pair_of(stride[0], 1),
                                                            .padding = pair_of(padding[0], 0)}));
}

at::Tensor MaxPool3dImpl::forward(const at::Tensor& x) {
  refuse_no_clip(*this, x);
  trace("input", x);
  at::Tensor y = x;
  if (space_) y = clips_of_frames(space_(frames_of(y)), y);
  if (time_) y = clips_of_times(time_(times_of(y)), y);
  trace("output", y);
  return y;
}

GlobalAvgPool3dImpl::GlobalAvgPool3dImpl() : mean_(register_module("mean", GlobalAvgPool2d())) {}

at::Tensor GlobalAvgPool3dImpl::forward(const at::Tensor& x) {
  refuse_no_clip(*this, x);
  trace("input", x);
  const at::Tensor y = mean_(times_of(x));
  trace("output", y);
  return y;
}

}  // namespace tandem
