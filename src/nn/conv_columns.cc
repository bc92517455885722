#include "nn/conv_columns.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "nn/kernel_choice.h"
#include "nn/linear_gemm.h"

namespace tandem {
namespace {

// A convolution of one place with stride 1 has x itself as columns.
bool is_its_own_columns(const ConvShape& s) {
  return s.kernel_h == 1 && s.kernel_w == 1 && s.stride_h == 1 && s.stride_w == 1 && s.pad_h == 0 && s.pad_w == 0 &&
         s.columns() == s.channels;
}

at::Tensor columns_of(const ConvShape& s, const at::Tensor& x, int64_t first, int64_t count) {
  if (is_its_own_columns(s)) return x.permute({0, 2, 3, 1}).reshape({s.places(), s.channels}).narrow(0, first, count);
  at::Tensor columns = at::empty({count, s.columns()}, x.options().memory_format(at::MemoryFormat::Contiguous));
  kernels_for<ConvKernels>(x).columns(s, x.const_data_ptr(), first, count, columns.data_ptr(), stream_for(x));
  return columns;
}

}  // namespace

ConvShape conv_shape(const at::Tensor& x, const at::Tensor& y, at::IntArrayRef kernel, at::IntArrayRef stride,
                     at::IntArrayRef padding, at::IntArrayRef dilation) {
  const auto number = [](int64_t n) { return static_cast<int>(n); };
  return {x.size(0),          x.size(1),          number(x.size(2)),   number(x.size(3)),   number(y.size(2)),
          number(y.size(3)),  number(kernel[0]),  number(kernel[1]),   number(stride[0]),   number(stride[1]),
          number(padding[0]), number(padding[1]), number(dilation[0]), number(dilation[1]), number(x.element_size())};
}

int64_t conv_chunks(int64_t places, int64_t out, int64_t columns) {
  constexpr int64_t kTile = 128, kTiles = 256, kLeastPlaces = 4096;
  const int64_t tiles = ((out + kTile - 1) / kTile) * ((columns + kTile - 1) / kTile);
  for (int64_t chunks = std::min(places / kLeastPlaces, (kTiles + tiles - 1) / tiles); chunks > 1; --chunks)
    if (places % chunks == 0) return chunks;
  return 1;
}

at::Tensor conv_weight_leaves(const ConvLeavesPass& pass, const ConvShape& s, const at::Tensor& x,
                              const at::Tensor& dy) {
  const int64_t out = dy.size(1), columns = s.columns(), used = int64_t{s.kernel_h} * s.kernel_w * s.channels;
  const int64_t shard_places = s.places() / pass.shards, chunks = conv_chunks(shard_places, out, columns);
  const int64_t chunk_places = shard_places / chunks, chunk_bytes = chunk_places * columns * s.element_bytes;
  const int64_t all = pass.shards * chunks;
  const int64_t group =
      is_its_own_columns(s) ? all : std::clamp<int64_t>(pass.column_bytes / std::max<int64_t>(1, chunk_bytes), 1, all);
  const at::Tensor gradients = dy.permute({0, 2, 3, 1}).reshape({s.places(), out});
  at::Tensor leaves =
      at::empty({pass.shards, out, columns}, x.options().dtype(at::kFloat).memory_format(at::MemoryFormat::Contiguous));
  LinearPass gemm{columns, out, chunk_places, 0, static_cast<int>(pass.job_shards * chunks), pass.one_by_one};
  for (int64_t first = 0; first < all; first += group) {
    gemm.shards = static_cast<int>(std::min(group, all - first));
    const int64_t place = first * chunk_places, places = gemm.shards * chunk_places;
    const at::Tensor part =
        linear_weight_leaves(gemm, gradients.narrow(0, place, places), columns_of(s, x, place, places));
    if (chunks == 1 && gemm.shards == pass.shards) {
      leaves = part;
      break;
    }
    kernels_for<ConvKernels>(x).add_chunks(part.const_data_ptr<float>(), first, gemm.shards, chunks, out * columns,
                                           leaves.data_ptr<float>(), stream_for(x));
  }
  if (used < columns) leaves = leaves.narrow(2, 0, used).contiguous();
  return leaves.view({pass.shards, out, s.kernel_h, s.kernel_w, s.channels});
}

}  // namespace tandem
