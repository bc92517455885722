// kernels/gpu/tree_kernels.cu -- CUDA twins of cpu/tree_kernels.cc.
#include "kernels/gpu/launch.h"
#include "kernels/tree_kernels.h"

namespace tandem::cuda {
namespace {

// In the constant bank with the other arguments: all threads read the same entry at the same time.
template <int kShards>
struct Merges {
  uint8_t after[kShards];
};

// Partial sums that wait, the newest at index 0. Pushing and merging shift all of them, so every index is a
// compile-time constant and the stack stays in registers.
template <int kWidth, int kPending>
struct ShiftedStack {
  float waiting[kPending][kWidth] = {};

  __device__ __forceinline__ void push(const float (&leaf)[kWidth], int merges) {
    float sum[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum[i] = leaf[i] + 0.0f;
#pragma unroll 1
    for (; merges > 0; --merges) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum[i] = waiting[0][i] + sum[i];
#pragma unroll
      for (int d = 0; d + 1 < kPending; ++d)
#pragma unroll
        for (int i = 0; i < kWidth; ++i) waiting[d][i] = waiting[d + 1][i];
    }
#pragma unroll
    for (int d = kPending - 1; d > 0; --d)
#pragma unroll
      for (int i = 0; i < kWidth; ++i) waiting[d][i] = waiting[d - 1][i];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) waiting[0][i] = sum[i];
  }
};

template <int kWidth>
__device__ __forceinline__ void load(float (&to)[kWidth], const float* from) {
  if constexpr (kWidth == 4) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
  } else {
    to[0] = *from;
  }
}

// A thread has kWidth neighbouring elements at a time. Leaves are loaded kBatch at once, ahead of their sums: without
// it each load would wait for the one before.
template <int kWidth, int kPending, int kShards>
__global__ void __launch_bounds__(kThreads)
    add_leaves(const float* leaves, int64_t leaf_stride, int shards, const __grid_constant__ Merges<kShards> merges,
               float* out, int64_t n, bool add) {
  constexpr int kBatch = 4;
  for (int64_t i = first_item() * kWidth; i + kWidth <= n; i += item_stride() * kWidth) {
    ShiftedStack<kWidth, kPending> stack;
    for (int first = 0; first < shards; first += kBatch) {
      float leaf[kBatch][kWidth];
#pragma unroll
      for (int k = 0; k < kBatch; ++k)
        if (first + k < shards) load(leaf[k], leaves + (first + k) * leaf_stride + i);
#pragma unroll
      for (int k = 0; k < kBatch; ++k)
        if (first + k < shards) stack.push(leaf[k], merges.after[first + k]);
    }
    float sum[kWidth] = {};
    if (add) load(sum, out + i);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sum[k] = add ? sum[k] + stack.waiting[0][k] : stack.waiting[0][k];
    if constexpr (kWidth == 4)
      *reinterpret_cast<float4*>(out + i) = {sum[0], sum[1], sum[2], sum[3]};
    else
      out[i] = sum[0];
  }
}

template <int kPending, int kShards>
void launch_tree_sum(const float* leaves, int64_t leaf_stride, int shards, const int* merges, float* out, int64_t n,
                     bool add, Stream stream) {
  Merges<kShards> given{};
  for (int shard = 0; shard < shards; ++shard) given.after[shard] = static_cast<uint8_t>(merges[shard]);
  const bool by_four = aligned16(leaves, out) && (leaf_stride % 4 == 0 || shards == 1);
  const int64_t fours = by_four ? n / 4 : 0, rest = n - 4 * fours;
  if (fours > 0) {
    add_leaves<4, kPending>
        <<<grid_for(fours), kThreads, 0, stream>>>(leaves, leaf_stride, shards, given, out, 4 * fours, add);
    check_launch("tree_sum");
  }
  if (rest > 0) {
    add_leaves<1, kPending><<<grid_for(rest), kThreads, 0, stream>>>(leaves + 4 * fours, leaf_stride, shards, given,
                                                                     out + 4 * fours, rest, add);
    check_launch("tree_sum, rest");
  }
}

// One block per shard, one thread per lane.
__global__ void __launch_bounds__(kSumLanes) add_rows(const float* x, const float* weight, int64_t rows, float* out) {
  __shared__ float lanes[kSumLanes];
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t first = int64_t{blockIdx.x} * rows;
  float sum = 0;
  for (int64_t row = lane; row < rows; row += kSumLanes)
    sum = sum + (weight ? x[first + row] * weight[first + row] : x[first + row]);
  lanes[lane] = sum;
  __syncthreads();
  for (int half = kSumLanes / 2; half > 0; half /= 2) {
    if (lane < half) lanes[lane] = lanes[lane] + lanes[lane + half];
    __syncthreads();
  }
  if (lane == 0) out[blockIdx.x] = lanes[0];
}

}  // namespace

void tree_sum(const float* leaves, int64_t leaf_stride, int shards, const int* merges, float* out, int64_t n, bool add,
              void* stream) {
  const int depth = tree_depth(merges, shards);
  if (shards > kMaxTreeShards || depth > 12)
    throw std::logic_error("a sum tree of " + std::to_string(shards) + " shards and " + std::to_string(depth) +
                           " partial sums at once: a GPU adds up to " + std::to_string(kMaxTreeShards) +
                           " and 12 in one call");
  const Stream queue = static_cast<Stream>(stream);
  if (shards <= 64 && depth <= 4)
    launch_tree_sum<4, 64>(leaves, leaf_stride, shards, merges, out, n, add, queue);
  else if (shards <= 64 && depth <= 7)
    launch_tree_sum<7, 64>(leaves, leaf_stride, shards, merges, out, n, add, queue);
  else
    launch_tree_sum<12, kMaxTreeShards>(leaves, leaf_stride, shards, merges, out, n, add, queue);
}

void shard_sums(const float* x, const float* weight, int shards, int64_t rows, float* out, void* stream) {
  if (shards <= 0) return;
  add_rows<<<static_cast<unsigned>(shards), kSumLanes, 0, static_cast<Stream>(stream)>>>(x, weight, rows, out);
  check_launch("shard_sums");
}

}  // namespace tandem::cuda
