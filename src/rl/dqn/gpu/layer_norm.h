// rl/dqn/gpu/layer_norm.h -- layer norm, ReLU and dropout of rows of the DQN's nets: one warp a row, four numbers a
// lane at a time.
#pragma once

#include <type_traits>

#include "kernels/random_fill_math.h"
#include "rl/dqn/gpu/dqn_kernels.h"
#include "rl/dqn/gpu/dueling_head.h"

namespace tandem::cuda {

// ReLU. NaN stays, for the guard to see.
__device__ inline float4 above_zero(float4 x) {
  return {x.x <= 0 ? 0.0f : x.x, x.y <= 0 ? 0.0f : x.y, x.z <= 0 ? 0.0f : x.z, x.w <= 0 ? 0.0f : x.w};
}

__device__ inline float4 less(float4 x, float y) { return {x.x - y, x.y - y, x.z - y, x.w - y}; }

// Calls with how many fours of a row so wide a lane holds.
template <class Call>
void with_fours(int width, Call call) {
  if (width <= kMostGpuWidth / 2)
    call(std::integral_constant<int, kMostFours / 2>{});
  else
    call(std::integral_constant<int, kMostFours>{});
}

// A lane's numbers of a row of so many.
template <int kFours>
__device__ void fetch_row(const float* from, int width, float4 (&x)[kFours]) {
#pragma unroll
  for (int i = 0; i < kFours; ++i)
    if (const int column = (i * 32 + static_cast<int>(threadIdx.x) % 32) * 4; column < width)
      x[i] = *reinterpret_cast<const float4*>(from + column);
    else
      x[i] = {0, 0, 0, 0};
}

// A norm of `kinds` groups of rows of every set. Rows of kind 0, where `learning`, have dropout and go to `learned`:
// the way back needs the normed sums, which stay in `sums`, and the inverse deviation. What comes out of others takes
// the sums' place.
struct Norm {
  float *sums, *learned, *inverse;
  int64_t scale, shift;
  int kinds, rows, width;
  bool learning;
  uint32_t site;
};

struct Moments {
  float mean = 0, inverse = 0;  // of the deviation
};

// Of a row whose numbers a warp has.
template <int kFours>
__device__ Moments moments_of(const float4 (&x)[kFours], int width, float epsilon) {
  const auto here = [&](int i) { return (i * 32 + static_cast<int>(threadIdx.x) % 32) * 4 < width; };
  float sum = 0, squares = 0;
#pragma unroll
  for (int i = 0; i < kFours; ++i)
    if (here(i)) sum = sum + ((x[i].x + x[i].y) + (x[i].z + x[i].w));
  const float mean = warp_sum(sum) / static_cast<float>(width);
#pragma unroll
  for (int i = 0; i < kFours; ++i) {
    if (!here(i)) continue;
    const float4 d = less(x[i], mean);
    squares = squares + ((d.x * d.x + d.y * d.y) + (d.z * d.z + d.w * d.w));
  }
  return {mean, 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(width) + epsilon)};
}

// Of rows that lie somewhere, row(i) says where; lane i gets those of the i-th. They are waited for together.
template <int kRows, class Row>
__device__ Moments moments_there(int width, float epsilon, Row row) {
  const int lane = threadIdx.x % 32;
  const auto sum_of_rows = [&](auto of) {  // lane i's of row i; of(i, x): what a lane adds of a row
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
      for (int r = 0; r < kRows; ++r) sum[r] = sum[r] + __shfl_xor_sync(kWholeWarp, sum[r], apart);
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (lane == r) own = sum[r];
    return own;
  };
  const float mean = sum_of_rows([](int, float4 x) { return (x.x + x.y) + (x.z + x.w); }) / static_cast<float>(width);
  float means[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) means[r] = __shfl_sync(kWholeWarp, mean, r);
  const float squares = sum_of_rows([&](int r, float4 x) {
    const float4 d = less(x, means[r]);
    return (d.x * d.x + d.y * d.y) + (d.z * d.z + d.w * d.w);
  });
  return {mean, 1.0f / sqrtf(squares / static_cast<float>(width) + epsilon)};
}

// Four numbers of a row: their sums normed, what comes out of these, and what dropout leaves of it.
__device__ inline float4 normed_of(float4 x, float mean, float inverse) {
  const float4 d = less(x, mean);
  return {d.x * inverse, d.y * inverse, d.z * inverse, d.w * inverse};
}
__device__ inline float4 out_of(float4 normed, float4 scale, float4 shift) {
  return above_zero({normed.x * scale.x + shift.x, normed.y * scale.y + shift.y, normed.z * scale.z + shift.z,
                     normed.w * scale.w + shift.w});
}
__device__ inline float4 left_of(float4 y, uint32_t drawn, int turn, float kept_value) {
  const uint32_t bits = drawn >> 4 * turn;
  return {y.x * (bits & 1 ? kept_value : 0.0f), y.y * (bits & 2 ? kept_value : 0.0f),
          y.z * (bits & 4 ? kept_value : 0.0f), y.w * (bits & 8 ? kept_value : 0.0f)};
}
// A lane's part of what dropout leaves of a row so wide (see DqnWork::left).
__device__ inline uint32_t draw_left(const RandomKey& key, int row, int width, const MaskShape& mask) {
  const int lane = threadIdx.x % 32;
  uint32_t drawn = 0;
#pragma unroll 1
  for (int column = lane * 4, at = 0; column < width; column += 128, at += 4) {
    const PhiloxBlock block = random_block(key, static_cast<uint64_t>(int64_t{row} * width + column) / 4);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (mask_from_u32(block.word[i], mask) != 0) drawn |= 1u << (at + i);
  }
  return drawn;
}
// Where it is, if it was drawn beforehand.
__device__ inline uint32_t* left_at(const DqnShape& shape, const DqnWork& work, uint32_t site, int set, int row) {
  const int64_t layer = static_cast<int64_t>(site - kDropout) * shape.sets();
  return work.left + ((layer + set) * shape.piece + row) * 32 + threadIdx.x % 32;
}
static_assert(kMostGpuWidth <= 128 * 8, "a word has room for eight turns");

// One row, x: its sums. put(column, y) gets what comes out; scale, shift and what dropout leaves are of this lane's
// numbers.
template <int kFours, class Put>
__device__ void norm_row(const DqnShape& shape, const Norm& layer, uint32_t drawn, int set, int row, bool learned,
                         const float4 (&x)[kFours], float mean, float inverse, const float4 (&scale)[kFours],
                         const float4 (&shift)[kFours], Put put) {
  const int lane = threadIdx.x % 32;
  if (learned && lane == 0) layer.inverse[int64_t{set} * layer.rows + row] = inverse;
  const MaskShape mask = dropout_shape(shape.dropout);
  float* const sums = layer.sums + (int64_t{set} * layer.kinds * layer.rows + row) * layer.width;
  float* const out = layer.learned + (int64_t{set} * layer.rows + row) * layer.width;
#pragma unroll
  for (int i = 0; i < kFours; ++i) {
    const int column = (i * 32 + lane) * 4;
    if (column >= layer.width) continue;
    const float4 normed = normed_of(x[i], mean, inverse);
    float4 y = out_of(normed, scale[i], shift[i]);
    if (learned) {
      *reinterpret_cast<float4*>(sums + column) = normed;
      if (shape.dropout > 0) y = left_of(y, drawn, i, mask.kept_value);
      *reinterpret_cast<float4*>(out + column) = y;
    }
    put(column, y);
  }
}

// ---- the way back ----

struct NormBack {
  const float *normed, *out, *inverse;  // of the forward pass; the first of three kinds
  float *dz, *dx;                       // dz: the gradient of `out` at first, where it comes from memory
  int64_t scale;
  int width;
};
inline NormBack first_norm_back(const DqnShape& shape, const DqnPlaces& p, const DqnWork& w) {
  return {w.sums1, w.out1, w.inverse1, w.dz1, w.dx1, p.scale1, shape.wide};
}
inline NormBack second_norm_back(const DqnShape& shape, const DqnPlaces& p, const DqnWork& w) {
  return {w.sums2, w.out2, w.inverse2, w.dz2, w.dx2, p.scale2, shape.narrow};
}

// One row, g: the gradient of what came out of it. put(column, dx) gets that of its sums, too.
template <int kFours, class Put>
__device__ void norm_row_back(const DqnShape& shape, const NormBack& layer, const float* net, int set, int row,
                              const float4 (&g)[kFours], Put put) {
  const int lane = threadIdx.x % 32;
  const int64_t there = (int64_t{set} * 3 * shape.piece + row) * layer.width;
  const int64_t here = (int64_t{set} * shape.piece + row) * layer.width;
  const float kept = shape.dropout > 0 ? dropout_shape(shape.dropout).kept_value : 1.0f;
  float4 y[kFours], scale[kFours], n[kFours], d[kFours];
  fetch_row(layer.out + here, layer.width, y);
  fetch_row(layer.normed + there, layer.width, n);
  fetch_row(net + layer.scale, layer.width, scale);
  const float inverse = layer.inverse[int64_t{set} * shape.piece + row];
  float sum = 0, product = 0;
#pragma unroll
  for (int i = 0; i < kFours; ++i) {
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
  for (int i = 0; i < kFours; ++i) {
    const int column = (i * 32 + lane) * 4;
    if (column >= layer.width) continue;
    const float4 dx = {inverse * ((d[i].x - mean) - n[i].x * along), inverse * ((d[i].y - mean) - n[i].y * along),
                       inverse * ((d[i].z - mean) - n[i].z * along), inverse * ((d[i].w - mean) - n[i].w * along)};
    *reinterpret_cast<float4*>(layer.dx + here + column) = dx;
    put(column, dx);
  }
}

}  // namespace tandem::cuda
