// kernels/gpu/layer_norm.h -- layer norm, ReLU and dropout of rows, forward and backward: one warp a row, a lane holds
// float4s 128 columns apart (coalesced; no shared memory).
#pragma once

#include <type_traits>

#include "kernels/gpu/dropout_bits.h"

namespace tandem::cuda {

inline constexpr int kMostNormWidth = 1024;
inline constexpr int kMostFloat4s = kMostNormWidth / 128;  // of a row in a lane
static_assert(kMostNormWidth <= kMostDropoutWidth);

// Calls with the float4s of a row that a lane holds: 4 or 8, so that narrow rows take fewer registers.
template <class Call>
void with_float4s(int width, Call call) {
  if (width <= kMostNormWidth / 2)
    call(std::integral_constant<int, kMostFloat4s / 2>{});
  else
    call(std::integral_constant<int, kMostFloat4s>{});
}

// A lane's part of a row; 0 beyond its end.
template <int kFloat4s>
__device__ void load_row(const float* from, int width, float4 (&x)[kFloat4s]) {
#pragma unroll
  for (int i = 0; i < kFloat4s; ++i)
    if (const int column = (i * 32 + static_cast<int>(threadIdx.x) % 32) * 4; column < width)
      x[i] = *reinterpret_cast<const float4*>(from + column);
    else
      x[i] = {0, 0, 0, 0};
}

// The norm of rows [shard][pass][rows][width]. Rows of pass 0 in training get dropout, and keep what backward needs:
// normalized values in place of `sums`, output in `out` [shard][rows][width], inv_std [shard][rows]. The output of
// other rows takes the place of their sums.
struct LayerNorm {
  float *sums, *out, *inv_std;
  int64_t scale, shift;  // offsets into the net's weights
  int passes, rows, width;
  bool training;
  uint32_t site;  // random stream of its dropout
};

struct Moments {
  float mean = 0, inv_std = 0;
};

// Of a row that a warp holds in registers.
template <int kFloat4s>
__device__ Moments moments_of(const float4 (&x)[kFloat4s], int width, float epsilon) {
  const auto here = [&](int i) { return (i * 32 + static_cast<int>(threadIdx.x) % 32) * 4 < width; };
  float sum = 0, squares = 0;
#pragma unroll
  for (int i = 0; i < kFloat4s; ++i)
    if (here(i)) sum = sum + ((x[i].x + x[i].y) + (x[i].z + x[i].w));
  const float mean = warp_sum(sum) / static_cast<float>(width);
#pragma unroll
  for (int i = 0; i < kFloat4s; ++i) {
    if (!here(i)) continue;
    const float4 d = minus4(x[i], mean);
    squares = squares + ((d.x * d.x + d.y * d.y) + (d.z * d.z + d.w * d.w));
  }
  return {mean, 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(width) + epsilon)};
}

// Of kRows rows in memory, row(i) is the address of one; lane i gets the moments of the i-th. The rows' loads and
// shuffles are interleaved, so that latencies overlap. The same bits as moments_of().
template <int kRows, class Row>
__device__ Moments moments_of_rows(int width, float epsilon, Row row) {
  const int lane = threadIdx.x % 32;
  const auto sum_of_rows = [&](auto of) {  // lane i gets that of row i; of(i, x): what a float4 of a row adds
    float sum[kRows], own = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) sum[r] = 0;
#pragma unroll 1
    for (int column = lane * 4; column < width; column += 128)
#pragma unroll
      for (int r = 0; r < kRows; ++r) sum[r] = sum[r] + of(r, *reinterpret_cast<const float4*>(row(r) + column));
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2)
#pragma unroll
      for (int r = 0; r < kRows; ++r) sum[r] = sum[r] + __shfl_xor_sync(kFullMask, sum[r], apart);
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (lane == r) own = sum[r];
    return own;
  };
  const float mean = sum_of_rows([](int, float4 x) { return (x.x + x.y) + (x.z + x.w); }) / static_cast<float>(width);
  float means[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) means[r] = __shfl_sync(kFullMask, mean, r);
  const float squares = sum_of_rows([&](int r, float4 x) {
    const float4 d = minus4(x, means[r]);
    return (d.x * d.x + d.y * d.y) + (d.z * d.z + d.w * d.w);
  });
  return {mean, 1.0f / sqrtf(squares / static_cast<float>(width) + epsilon)};
}

__device__ inline float4 normalize(float4 x, float mean, float inv_std) {
  const float4 d = minus4(x, mean);
  return {d.x * inv_std, d.y * inv_std, d.z * inv_std, d.w * inv_std};
}
__device__ inline float4 scale_shift_relu(float4 normed, float4 scale, float4 shift) {
  return relu4({normed.x * scale.x + shift.x, normed.y * scale.y + shift.y, normed.z * scale.z + shift.z,
                normed.w * scale.w + shift.w});
}

// One row: x are its sums, `dropout` the rate. keep: for backward (pass 0 in training). put(column, y) gets the output;
// scale, shift and dropout bits are this lane's.
template <int kFloat4s, class Put>
__device__ void layer_norm_row(double dropout, const LayerNorm& layer, uint32_t bits, int shard, int row, bool keep,
                               const float4 (&x)[kFloat4s], float mean, float inv_std, const float4 (&scale)[kFloat4s],
                               const float4 (&shift)[kFloat4s], Put put) {
  const int lane = threadIdx.x % 32;
  if (keep && lane == 0) layer.inv_std[int64_t{shard} * layer.rows + row] = inv_std;
  const MaskShape mask = dropout_shape(dropout);
  float* const sums = layer.sums + (int64_t{shard} * layer.passes * layer.rows + row) * layer.width;
  float* const out = layer.out + (int64_t{shard} * layer.rows + row) * layer.width;
#pragma unroll
  for (int i = 0; i < kFloat4s; ++i) {
    const int column = (i * 32 + lane) * 4;
    if (column >= layer.width) continue;
    const float4 normed = normalize(x[i], mean, inv_std);
    float4 y = scale_shift_relu(normed, scale[i], shift[i]);
    if (keep) {
      *reinterpret_cast<float4*>(sums + column) = normed;
      if (dropout > 0) y = apply_dropout(y, bits, i, mask.kept_value);
      *reinterpret_cast<float4*>(out + column) = y;
    }
    put(column, y);
  }
}

// Backward of rows [shard][rows][width], from what forward kept in pass 0.
struct LayerNormBackward {
  const float *normed, *out, *inv_std;  // normed: [shard][passes][rows][width]
  float *dz, *dx;                       // dz: the gradient of `out` at first, where that comes from memory
  int64_t scale;
  int width, rows, passes;
  double dropout;
};

// One row; g: the gradient of its output. dz (before scale and shift) and dx (of the sums) are stored; put(column, dx)
// gets the latter, too.
template <int kFloat4s, class Put>
__device__ void layer_norm_row_backward(const LayerNormBackward& layer, const float* net, int shard, int row,
                                        const float4 (&g)[kFloat4s], Put put) {
  const int lane = threadIdx.x % 32;
  const int64_t there = (int64_t{shard} * layer.passes * layer.rows + row) * layer.width;
  const int64_t here = (int64_t{shard} * layer.rows + row) * layer.width;
  const float kept = layer.dropout > 0 ? dropout_shape(layer.dropout).kept_value : 1.0f;
  float4 y[kFloat4s], scale[kFloat4s], n[kFloat4s], d[kFloat4s];
  load_row(layer.out + here, layer.width, y);
  load_row(layer.normed + there, layer.width, n);
  load_row(net + layer.scale, layer.width, scale);
  const float inv_std = layer.inv_std[int64_t{shard} * layer.rows + row];
  float sum = 0, product = 0;
#pragma unroll
  for (int i = 0; i < kFloat4s; ++i) {
    const int column = (i * 32 + lane) * 4;
    if (column >= layer.width) continue;
    const float4 dz = {y[i].x > 0 ? g[i].x * kept : 0.0f, y[i].y > 0 ? g[i].y * kept : 0.0f,
                       y[i].z > 0 ? g[i].z * kept : 0.0f, y[i].w > 0 ? g[i].w * kept : 0.0f};
    *reinterpret_cast<float4*>(layer.dz + here + column) = dz;
    d[i] = {dz.x * scale[i].x, dz.y * scale[i].y, dz.z * scale[i].z, dz.w * scale[i].w};
    sum = sum + ((d[i].x + d[i].y) + (d[i].z + d[i].w));
    product = product + ((d[i].x * n[i].x + d[i].y * n[i].y) + (d[i].z * n[i].z + d[i].w * n[i].w));
  }
  const float mean = warp_sum(sum) / static_cast<float>(layer.width);
  const float along = warp_sum(product) / static_cast<float>(layer.width);
#pragma unroll
  for (int i = 0; i < kFloat4s; ++i) {
    const int column = (i * 32 + lane) * 4;
    if (column >= layer.width) continue;
    const float4 dx = {inv_std * ((d[i].x - mean) - n[i].x * along), inv_std * ((d[i].y - mean) - n[i].y * along),
                       inv_std * ((d[i].z - mean) - n[i].z * along), inv_std * ((d[i].w - mean) - n[i].w * along)};
    *reinterpret_cast<float4*>(layer.dx + here + column) = dx;
    put(column, dx);
  }
}

}  // namespace tandem::cuda
