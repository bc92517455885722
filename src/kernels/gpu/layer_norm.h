// kernels/gpu/layer_norm.h -- layer norm, ReLU and dropout of rows, forward and backward: one warp a row, a lane holds
// float4s 128 columns apart (coalesced; no shared memory).
//
// Names, for one hidden layer: preact = W x + b, the linear layer's output (pre-activation); normed = (preact - mean) *
// inv_std; norm_out = normed * scale + shift; out = dropout(ReLU(norm_out)). X_grad is the gradient of X.
#pragma once

#include <type_traits>

#include "kernels/gpu/dropout_bits.h"

namespace tandem::cuda {

inline constexpr int kMaxNormWidth = 1024;
inline constexpr int kMaxFloat4s = kMaxNormWidth / 128;  // of a row in a lane
static_assert(kMaxNormWidth <= kMaxDropoutWidth);

// Calls call(N) with the number of float4s of a row that a lane holds: 4 or 8, so that narrow rows take fewer
// registers.
template <class Call>
void with_float4s(int width, Call call) {
  if (width <= kMaxNormWidth / 2)
    call(std::integral_constant<int, kMaxFloat4s / 2>{});
  else
    call(std::integral_constant<int, kMaxFloat4s>{});
}

// A lane's part of a row; 0 beyond its end.
template <int kFloat4s>
__device__ void load_row(const float* src, int width, float4 (&x)[kFloat4s]) {
#pragma unroll
  for (int i = 0; i < kFloat4s; ++i)
    if (const int column = (i * 32 + static_cast<int>(threadIdx.x) % 32) * 4; column < width)
      x[i] = *reinterpret_cast<const float4*>(src + column);
    else
      x[i] = {0, 0, 0, 0};
}

// Forward of rows. preact is [shard][pass][rows][width] and is overwritten. Rows of pass 0 in training get dropout, and
// keep what backward needs: `normed` in place of preact, `out` [shard][rows][width], inv_std [shard][rows]. Other rows'
// `out` takes the place of preact.
struct LayerNorm {
  float *preact, *out, *inv_std;
  int64_t scale, shift;  // offsets into the net's weights
  int passes, rows, width;
  bool training;
  uint32_t site;  // random stream of its dropout
};

struct Moments {
  float mean = 0, inv_std = 0;
};

// Of a row that a warp holds in registers; every lane gets them.
template <int kFloat4s>
__device__ Moments moments_of(const float4 (&x)[kFloat4s], int width, float epsilon) {
  const auto in_row = [&](int i) { return (i * 32 + static_cast<int>(threadIdx.x) % 32) * 4 < width; };
  float sum = 0, squares = 0;
#pragma unroll
  for (int i = 0; i < kFloat4s; ++i)
    if (in_row(i)) sum = sum + ((x[i].x + x[i].y) + (x[i].z + x[i].w));
  const float mean = warp_sum(sum) / static_cast<float>(width);
#pragma unroll
  for (int i = 0; i < kFloat4s; ++i) {
    if (!in_row(i)) continue;
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
  const auto sum_of_rows = [&](auto term) {  // lane i gets that of row i; term(i, x): what a float4 of row i adds
    float sum[kRows], own = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) sum[r] = 0;
#pragma unroll 1
    for (int column = lane * 4; column < width; column += 128)
#pragma unroll
      for (int r = 0; r < kRows; ++r) sum[r] = sum[r] + term(r, *reinterpret_cast<const float4*>(row(r) + column));
#pragma unroll
    for (int lane_mask = 16; lane_mask > 0; lane_mask /= 2)
#pragma unroll
      for (int r = 0; r < kRows; ++r) sum[r] = sum[r] + __shfl_xor_sync(kFullMask, sum[r], lane_mask);
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

// Forward of one row by one warp: x is its preact, `dropout` the rate. keep: store what backward needs (pass 0 in
// training). put(column, y) gets four columns of `out`; x, scale, shift and dropout bits are this lane's.
template <int kFloat4s, class Put>
__device__ void layer_norm_row(double dropout, const LayerNorm& layer, uint32_t bits, int shard, int row, bool keep,
                               const float4 (&x)[kFloat4s], float mean, float inv_std, const float4 (&scale)[kFloat4s],
                               const float4 (&shift)[kFloat4s], Put put) {
  const int lane = threadIdx.x % 32;
  if (keep && lane == 0) layer.inv_std[int64_t{shard} * layer.rows + row] = inv_std;
  const MaskShape mask = dropout_shape(dropout);
  float* const kept_normed = layer.preact + (int64_t{shard} * layer.passes * layer.rows + row) * layer.width;
  float* const out = layer.out + (int64_t{shard} * layer.rows + row) * layer.width;
#pragma unroll
  for (int i = 0; i < kFloat4s; ++i) {
    const int column = (i * 32 + lane) * 4;
    if (column >= layer.width) continue;
    const float4 normed = normalize(x[i], mean, inv_std);
    float4 y = scale_shift_relu(normed, scale[i], shift[i]);
    if (keep) {
      *reinterpret_cast<float4*>(kept_normed + column) = normed;
      if (dropout > 0) y = apply_dropout(y, bits, i, mask.kept_value);
      *reinterpret_cast<float4*>(out + column) = y;
    }
    put(column, y);
  }
}

// Backward of rows [shard][rows][width], from what forward kept in pass 0.
struct LayerNormBackward {
  const float *normed, *out, *inv_std;  // normed: [shard][passes][rows][width]
  // norm_out_grad holds the gradient of `out` at first, where that comes from global memory.
  float *norm_out_grad, *preact_grad;
  int64_t scale;  // offset into the net's weights
  int width, rows, passes;
  double dropout;
};

// Backward of one row by one warp; out_grad is this lane's. norm_out_grad and preact_grad are stored; put(column, x)
// gets four columns of the latter, too.
template <int kFloat4s, class Put>
__device__ void layer_norm_row_backward(const LayerNormBackward& layer, const float* net, int shard, int row,
                                        const float4 (&out_grad)[kFloat4s], Put put) {
  const int lane = threadIdx.x % 32;
  const int64_t normed_offset = (int64_t{shard} * layer.passes * layer.rows + row) * layer.width;
  const int64_t offset = (int64_t{shard} * layer.rows + row) * layer.width;
  const float kept_value = layer.dropout > 0 ? dropout_shape(layer.dropout).kept_value : 1.0f;
  float4 out[kFloat4s], scale[kFloat4s], normed[kFloat4s], normed_grad[kFloat4s];
  load_row(layer.out + offset, layer.width, out);
  load_row(layer.normed + normed_offset, layer.width, normed);
  load_row(net + layer.scale, layer.width, scale);
  const float inv_std = layer.inv_std[int64_t{shard} * layer.rows + row];
  float grad_sum = 0, dot = 0;  // of normed_grad; of normed_grad and normed
#pragma unroll
  for (int i = 0; i < kFloat4s; ++i) {
    const int column = (i * 32 + lane) * 4;
    if (column >= layer.width) continue;
    const float4 norm_out_grad = {
        out[i].x > 0 ? out_grad[i].x * kept_value : 0.0f, out[i].y > 0 ? out_grad[i].y * kept_value : 0.0f,
        out[i].z > 0 ? out_grad[i].z * kept_value : 0.0f, out[i].w > 0 ? out_grad[i].w * kept_value : 0.0f};
    *reinterpret_cast<float4*>(layer.norm_out_grad + offset + column) = norm_out_grad;
    normed_grad[i] = {norm_out_grad.x * scale[i].x, norm_out_grad.y * scale[i].y, norm_out_grad.z * scale[i].z,
                      norm_out_grad.w * scale[i].w};
    grad_sum = grad_sum + ((normed_grad[i].x + normed_grad[i].y) + (normed_grad[i].z + normed_grad[i].w));
    dot = dot + ((normed_grad[i].x * normed[i].x + normed_grad[i].y * normed[i].y) +
                 (normed_grad[i].z * normed[i].z + normed_grad[i].w * normed[i].w));
  }
  const float mean_grad = warp_sum(grad_sum) / static_cast<float>(layer.width);
  const float mean_dot = warp_sum(dot) / static_cast<float>(layer.width);
#pragma unroll
  for (int i = 0; i < kFloat4s; ++i) {
    const int column = (i * 32 + lane) * 4;
    if (column >= layer.width) continue;
    const float4 preact_grad = {inv_std * ((normed_grad[i].x - mean_grad) - normed[i].x * mean_dot),
                                inv_std * ((normed_grad[i].y - mean_grad) - normed[i].y * mean_dot),
                                inv_std * ((normed_grad[i].z - mean_grad) - normed[i].z * mean_dot),
                                inv_std * ((normed_grad[i].w - mean_grad) - normed[i].w * mean_dot)};
    *reinterpret_cast<float4*>(layer.preact_grad + offset + column) = preact_grad;
    put(column, preact_grad);
  }
}

}  // namespace tandem::cuda
