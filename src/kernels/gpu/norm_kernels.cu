// kernels/gpu/norm_kernels.cu -- layer norm: one warp per row up to 1,024 columns, one block per row above.
//
// A row lives in registers between its sums, so each number is read once. Backward keeps the sums for weight and bias
// in registers too, over the rows of a block: 16 floats per chunk of 8 columns of a lane.
#include "kernels/gpu/launch.h"
#include "kernels/gpu/layer_kernels.h"
#include "kernels/gpu/typed_vectors.h"
#include "kernels/norm_kernels.h"
#include "kernels/norm_math.h"

namespace tandem::cuda {
namespace {

constexpr int kForwardThreads = 256;

// The sum over a row's lanes; every lane gets it. `scratch`: 8 floats of shared memory, for 256 lanes.
template <int kLanes>
__device__ __forceinline__ float lanes_sum(float x, float* scratch) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) x = x + __shfl_xor_sync(0xFFFFFFFFu, x, mask);
  if constexpr (kLanes == 32) return x;
  __syncthreads();  // everybody has read what the last call left there
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  float sums[8];
#pragma unroll
  for (int group = 0; group < 8; ++group) sums[group] = scratch[group];
#pragma unroll
  for (int mask = 4; mask > 0; mask /= 2)
#pragma unroll
    for (int group = 0; group < mask; ++group) sums[group] = sums[group] + sums[group + mask];
  return sums[0];
}

// Which columns this thread has: chunk c is columns first(c) to first(c) + count(c) - 1.
template <int kLanes>
struct Columns {
  int width;
  bool whole;  // every chunk has eight columns and is aligned
  __device__ int first(int chunk) const {
    return (chunk * kLanes + static_cast<int>(threadIdx.x) % kLanes) * kNormSlots;
  }
  __device__ int count(int chunk) const { return min(kNormSlots, width - first(chunk)); }
};

// The sum of the row's values in the order of norm_math.h; term(chunk, slot) is asked for this thread's own columns.
template <int kLanes, int kChunks, typename Term>
__device__ __forceinline__ float row_sum(const Columns<kLanes>& columns, float* scratch, const Term& term) {
  float slots[kNormSlots];
#pragma unroll
  for (int s = 0; s < kNormSlots; ++s) slots[s] = 0;
#pragma unroll
  for (int c = 0; c < kChunks; ++c)
#pragma unroll
    for (int s = 0; s < kNormSlots; ++s)
      if (s < columns.count(c)) slots[s] = slots[s] + term(c, s);
  return lanes_sum<kLanes>(add_slots(slots), scratch);
}

template <int kLanes, int kChunks>
__global__ void __launch_bounds__(kForwardThreads) forward_kernel(const LayerNormForwardCall call, bool whole) {
  __shared__ float scratch[8];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kForwardThreads / kLanes) + threadIdx.x / kLanes;
  if (row >= call.rows) return;  // a whole warp, or nobody
  const Columns<kLanes> columns{call.width, whole};
  const int64_t start = row * call.width;
  float x[kChunks][kNormSlots];
#pragma unroll
  for (int c = 0; c < kChunks; ++c)
    load8(call.x.data, call.x.type, start + columns.first(c), columns.count(c), whole && columns.count(c) > 0, x[c]);
  if (call.residual.data) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int count = columns.count(c);
      float other[kNormSlots];
      load8(call.residual.data, call.residual.type, start + columns.first(c), count, whole && count > 0, other);
#pragma unroll
      for (int s = 0; s < kNormSlots; ++s) x[c][s] = round_one(call.sum.type, x[c][s] + other[s]);
      store8(call.sum.data, call.sum.type, start + columns.first(c), count, whole && count > 0, x[c]);
    }
  }
  const float mean = row_sum<kLanes, kChunks>(columns, scratch, [&](int c, int s) { return x[c][s]; }) /
                     static_cast<float>(call.width);
  const float squares =
      row_sum<kLanes, kChunks>(columns, scratch, [&](int c, int s) { return squared_deviation(x[c][s], mean); });
  const RowStatistics statistics{mean, reciprocal_deviation(squares, call.width, call.eps)};
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int first = columns.first(c), count = columns.count(c);
    float weight[kNormSlots], bias[kNormSlots];
    load8(call.weight, FloatType::kFloat, first, count, whole && count > 0, weight);
    load8(call.bias, FloatType::kFloat, first, count, whole && count > 0, bias);
#pragma unroll
    for (int s = 0; s < kNormSlots; ++s) x[c][s] = normalised(x[c][s], statistics) * weight[s] + bias[s];
    store8(call.out.data, call.out.type, start + first, count, whole && count > 0, x[c]);
  }
  if (threadIdx.x % kLanes == 0) {
    call.mean[row] = statistics.mean;
    call.rstd[row] = statistics.rstd;
  }
}

// Adds the row groups' sums in order and writes the block's partial sum.
template <int kLanes, int kChunks>
__device__ __forceinline__ void write_partial(float* partial, const float (&sums)[kChunks][kNormSlots],
                                              const Columns<kLanes>& columns) {
  if constexpr (kLanes == norm_threads(kLanes)) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
      store8(partial, FloatType::kFloat, columns.first(c), columns.count(c), columns.whole && columns.count(c) > 0,
             sums[c]);
  } else {
    constexpr int kGroups = norm_threads(kLanes) / kLanes, kPadded = kChunks * kLanes * kNormSlots;
    __shared__ __align__(16) float groups[kGroups][kPadded];
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
      store8(groups[threadIdx.x / kLanes], FloatType::kFloat, columns.first(c), sums[c]);
    __syncthreads();
    for (int column = static_cast<int>(threadIdx.x); column < columns.width; column += norm_threads(kLanes)) {
      float sum = groups[0][column];
#pragma unroll
      for (int g = 1; g < kGroups; ++g) sum = sum + groups[g][column];
      partial[column] = sum;
    }
  }
}

// Sums over a block's rows of what each lane has. Up to 768 columns they lie in shared memory, four floats of a lane
// side by side: in registers they would leave room for few warps.
template <int kLanes, int kChunks>
class LaneSums {
 public:
  static constexpr bool kShared = kLanes == 32 && kChunks <= 3;
  static constexpr int kFloat4s = kShared ? 2 * kChunks * norm_threads(kLanes) : 1;

  __device__ __forceinline__ explicit LaneSums(float4* memory) : memory_(memory + threadIdx.x) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if constexpr (kShared) {
          at(c, half) = make_float4(0, 0, 0, 0);
        } else {
#pragma unroll
          for (int s = 0; s < 4; ++s) registers_[c][4 * half + s] = 0;
        }
  }
  __device__ __forceinline__ void add(int c, const float (&x)[kNormSlots]) {
    if constexpr (kShared) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float4 sum = at(c, half);
        const float* const from = x + 4 * half;
        sum = make_float4(sum.x + from[0], sum.y + from[1], sum.z + from[2], sum.w + from[3]);
        at(c, half) = sum;
      }
    } else {
#pragma unroll
      for (int s = 0; s < kNormSlots; ++s) registers_[c][s] = registers_[c][s] + x[s];
    }
  }
  __device__ __forceinline__ void read(float (&sums)[kChunks][kNormSlots]) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if constexpr (kShared) {
          const float4 sum = at(c, half);
          sums[c][4 * half] = sum.x, sums[c][4 * half + 1] = sum.y;
          sums[c][4 * half + 2] = sum.z, sums[c][4 * half + 3] = sum.w;
        } else {
#pragma unroll
          for (int s = 0; s < 4; ++s) sums[c][4 * half + s] = registers_[c][4 * half + s];
        }
  }

 private:
  __device__ __forceinline__ float4& at(int c, int half) { return memory_[(2 * c + half) * norm_threads(kLanes)]; }
  float4* memory_;
  float registers_[kShared ? 1 : kChunks][kNormSlots];
};

// Grid: (blocks of a shard, shards). kFull: every lane has all of its columns, and they are aligned.
template <int kLanes, int kChunks, bool kFull>
__global__ void __launch_bounds__(norm_threads(kLanes), kLanes == 32 ? (kFull && kChunks <= 3 ? 4 : 2) : 1)
    backward_kernel(const LayerNormBackwardCall call, int64_t block_rows, bool aligned) {
  using Sums = LaneSums<kLanes, kChunks>;
  __shared__ float scratch[8];
  __shared__ float4 sum_memory[2 * Sums::kFloat4s];
  constexpr int kGroups = norm_threads(kLanes) / kLanes;
  const Columns<kLanes> columns{call.width, kFull || aligned};
  const auto load = [&](const TypedInput& from, int64_t start, int c, float(&x)[kNormSlots]) {
    if constexpr (kFull)
      load8(from.data, from.type, start + columns.first(c), x);
    else
      load8(from.data, from.type, start + columns.first(c), columns.count(c), aligned && columns.count(c) > 0, x);
  };
  const auto store = [&](const TypedOutput& to, int64_t start, int c, const float(&x)[kNormSlots]) {
    if constexpr (kFull)
      store8(to.data, to.type, start + columns.first(c), x);
    else
      store8(to.data, to.type, start + columns.first(c), columns.count(c), aligned && columns.count(c) > 0, x);
  };
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * block_rows, end = min(begin + block_rows, call.shard_rows);
  Sums weight_sums(sum_memory), bias_sums(sum_memory + Sums::kFloat4s);
  for (int64_t r = begin + threadIdx.x / kLanes; r < end; r += kGroups) {
    const int64_t row = blockIdx.y * call.shard_rows + r, start = row * call.width;
    const RowStatistics statistics{call.mean[row], call.rstd[row]};
    float g[kChunks][kNormSlots], xhat[kChunks][kNormSlots];
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      load(call.out_grad, start, c, g[c]);
      load(call.sum, start, c, xhat[c]);
    }
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      float weight[kNormSlots], product[kNormSlots];
      load({call.weight, FloatType::kFloat}, 0, c, weight);
#pragma unroll
      for (int s = 0; s < kNormSlots; ++s) {
        xhat[c][s] = normalised(xhat[c][s], statistics);
        product[s] = g[c][s] * xhat[c][s];
      }
      weight_sums.add(c, product);
      bias_sums.add(c, g[c]);
#pragma unroll
      for (int s = 0; s < kNormSlots; ++s) g[c][s] = g[c][s] * weight[s];
    }
    if (!call.grad.data) continue;
    float other[kChunks][kNormSlots];  // asked for before the sums, which take long
    if (call.sum_grad.data) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) load(call.sum_grad, start, c, other[c]);
    }
    const float sum_g = row_sum<kLanes, kChunks>(columns, scratch, [&](int c, int s) { return g[c][s]; });
    const float sum_g_xhat =
        row_sum<kLanes, kChunks>(columns, scratch, [&](int c, int s) { return g[c][s] * xhat[c][s]; });
    const RowGradients gradients = row_gradients(sum_g, sum_g_xhat, statistics.rstd, call.width);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int s = 0; s < kNormSlots; ++s) {
        const float gradient = input_gradient(g[c][s], xhat[c][s], gradients);
        g[c][s] = call.sum_grad.data ? gradient + other[c][s] : gradient;
      }
      store(call.grad, start, c, g[c]);
      if (call.second_grad.data) store(call.second_grad, start, c, g[c]);
    }
  }
  if (!call.weight_leaves) return;
  float* const partial = call.scratch + (static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x) * 2 * call.width;
  float sums[kChunks][kNormSlots];
  weight_sums.read(sums);
  write_partial<kLanes, kChunks>(partial, sums, columns);
  bias_sums.read(sums);
  write_partial<kLanes, kChunks>(partial + call.width, sums, columns);
}

// The leaves from the partial sums [shards, blocks, 2, width]. A block of 8 x 32 threads has 32 neighbouring columns of
// [2, width]; the warps are the totals of norm_math.h.
__global__ void add_partials(const LayerNormBackwardCall call, int64_t blocks) {
  __shared__ float totals[kNormTotals][32];
  const int columns = 2 * call.width, lane = static_cast<int>(threadIdx.x) % 32, t = static_cast<int>(threadIdx.x) / 32;
  const int column = static_cast<int>(blockIdx.x) * 32 + lane;
  const float* const partial = call.scratch + static_cast<int64_t>(blockIdx.y) * blocks * columns + column;
  float total = 0;
  if (column < columns) {
#pragma unroll 16
    for (int64_t block = t; block < blocks; block += kNormTotals) total = total + partial[block * columns];
  }
  totals[t][lane] = total;
  for (int mask = kNormTotals / 2; mask > 0; mask /= 2) {
    __syncthreads();
    if (t < mask) totals[t][lane] = totals[t][lane] + totals[t + mask][lane];
  }
  if (t > 0 || column >= columns) return;
  float* const leaves = column < call.width ? call.weight_leaves : call.bias_leaves;
  leaves[static_cast<int64_t>(blockIdx.y) * call.width + column % call.width] = totals[0][lane];
}

// Calls run with the lanes and chunks for this width, as compile-time constants.
template <typename Run>
void with_columns(int width, const Run& run) {
  const int chunks = (width + norm_lanes(width) * kNormSlots - 1) / (norm_lanes(width) * kNormSlots);
  const auto with_chunks = [&](auto lanes) {
    if (chunks == 1) return run(lanes, std::integral_constant<int, 1>{});
    if (chunks == 2) return run(lanes, std::integral_constant<int, 2>{});
    if (chunks == 3) return run(lanes, std::integral_constant<int, 3>{});
    return run(lanes, std::integral_constant<int, 4>{});
  };
  if (norm_lanes(width) == 32)
    with_chunks(std::integral_constant<int, 32>{});
  else
    with_chunks(std::integral_constant<int, 256>{});
}

void layer_norm_forward(const LayerNormForwardCall& call, void* stream) {
  if (call.rows == 0) return;
  const bool whole = call.width % kNormSlots == 0 &&
                     aligned16(call.x.data, call.residual.data, call.weight, call.bias, call.sum.data, call.out.data);
  with_columns(call.width, [&](auto lanes, auto chunks) {
    constexpr int kLanes = decltype(lanes)::value, kChunks = decltype(chunks)::value;
    constexpr int kRows = kForwardThreads / kLanes;
    const auto grid = static_cast<unsigned>((call.rows + kRows - 1) / kRows);
    forward_kernel<kLanes, kChunks><<<grid, kForwardThreads, 0, static_cast<cudaStream_t>(stream)>>>(call, whole);
  });
  check_launch("layer_norm_forward");
}

void layer_norm_backward(const LayerNormBackwardCall& call, void* stream) {
  if (call.shard_rows == 0 || call.shards == 0) return;
  const auto queue = static_cast<cudaStream_t>(stream);
  const bool whole =
      call.width % kNormSlots == 0 && aligned16(call.sum.data, call.out_grad.data, call.sum_grad.data, call.weight,
                                                call.grad.data, call.second_grad.data, call.scratch);
  const int64_t blocks = norm_blocks(call.shard_rows);
  with_columns(call.width, [&](auto lanes, auto chunks) {
    constexpr int kLanes = decltype(lanes)::value, kChunks = decltype(chunks)::value;
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(call.shards));
    const int64_t block_rows = norm_block_rows(call.shard_rows);
    if (whole && call.width == kLanes * kChunks * kNormSlots)
      backward_kernel<kLanes, kChunks, true><<<grid, norm_threads(kLanes), 0, queue>>>(call, block_rows, whole);
    else
      backward_kernel<kLanes, kChunks, false><<<grid, norm_threads(kLanes), 0, queue>>>(call, block_rows, whole);
  });
  check_launch("layer_norm_backward");
  if (!call.weight_leaves) return;
  const dim3 grid(static_cast<unsigned>((2 * call.width + 31) / 32), static_cast<unsigned>(call.shards));
  add_partials<<<grid, 32 * kNormTotals, 0, queue>>>(call, blocks);
  check_launch("layer_norm_leaves");
}

}  // namespace

const LayerNormKernels& layer_norm_kernels() {
  static const LayerNormKernels kernels{layer_norm_forward, layer_norm_backward};
  return kernels;
}

}  // namespace tandem::cuda
