// rl/dqn/gpu/learn.cu -- the TD loss of the dueling net on a GPU, and backward to the gradients of its weights.
#include <algorithm>

#include "kernels/gpu/column_sums.h"
#include "kernels/gpu/gemm_linear.h"
#include "rl/dqn/gpu/dqn_kernels.h"
#include "rl/dqn/gpu/dueling_head.h"
#include "rl/dqn/gpu/net_norms.h"
#include "rl/replay/priority.h"

namespace tandem::cuda {
namespace {

// TD errors, the Huber loss, and its gradient down to the head features. Double DQN: three warps a row compute
// Q_online(s), Q_online(s') and Q_target(s'); a fourth warp computes the importance weight, or one of the three where
// blocks of four warps a row would exceed one wave.
constexpr int kLossRows = 4;
template <int kWarpsOfRow>
constexpr int kLossWarps = kWarpsOfRow* kLossRows;

__device__ int64_t warp_least(int64_t x) {
#pragma unroll
  for (int width = 16; width > 0; width /= 2) {
    const int64_t other = __shfl_xor_sync(kFullMask, x, width);
    x = other < x ? other : x;
  }
  return x;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int kLossBlocks = 2;  // on an SM, with three warps a row
#else
constexpr int kLossBlocks = 3;
#endif
template <int kWarpsOfRow>
__global__ void __launch_bounds__(kLossWarps<kWarpsOfRow> * 32, kWarpsOfRow == 4 ? 2 : kLossBlocks)
    loss(DqnShape shape, DqnOffsets offsets, DqnWork work, float* tail) {
  constexpr int kWarps = kLossWarps<kWarpsOfRow>;
  __shared__ int64_t least_of[kWarps];
  __shared__ float values[kLossRows][kPasses][kMostGpuActions], weights[kLossRows];
  const int job_shard = blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int index = shape.job_of(job_shard), shard = job_shard - index * shape.count + shape.first;
  const DqnJob& job = work.jobs[index];
  const int features = 2 * shape.head, first = blockIdx.x * kLossRows;
  int64_t least = kLargestPriority + 1;
  if (tail) {  // known to all, from the combined maximum
    least = *job.min_drawn_priority;
  } else {  // this worker has all shards
    const int64_t* const priorities = work.priority + int64_t{index} * shape.batch;
    for (int k = threadIdx.x; k < shape.batch; k += kWarps * 32) least = priorities[k] < least ? priorities[k] : least;
    least = warp_least(least);
    if (lane == 0) least_of[warp] = least;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < kWarps; ++w) least = least_of[w] < least ? least_of[w] : least;
    if (threadIdx.x == 0 && blockIdx.x == 0 && job_shard == index * shape.count) *job.min_drawn_priority = least;
  }
  if (const int pass = warp / kLossRows, r = first + warp % kLossRows; r < shape.shard_batch) {
    if (pass < kPasses) {
      float q[kMostGpuActions];
      q_values_of<kWarpsOfRow == 4>(
          shape, offsets, pass == 2 ? job.target : job.net,
          work.head_features + ((int64_t{job_shard} * kPasses + pass) * shape.shard_batch + r) * features, q);
#pragma unroll
      for (int a = 0; a < kMostGpuActions; ++a)
        if (lane == a) values[warp % kLossRows][pass][a] = q[a];
    }
    if (pass == kWarpsOfRow - 1 && lane == 0)
      weights[warp % kLossRows] =
          importance_weight(work.priority[int64_t{job_shard} * shape.shard_batch + r], least, work.params->beta);
  }
  __syncthreads();  // all Q values and weights of the block's rows
  const int r = first + warp;
  if (warp >= kLossRows || r >= shape.shard_batch) return;
  const float share = static_cast<float>(1 / static_cast<double>(shape.batch));
  float* const td_errors = tail ? tail + int64_t{index} * (2 + shape.batch) + 2 : job.td_errors;
  const int64_t row = int64_t{job_shard} * shape.shard_batch + r;
  const float* const head_features =
      work.head_features + (int64_t{job_shard} * kPasses * shape.shard_batch + r) * features;
  const float weight = weights[warp] * share;
  const float(&next)[kMostGpuActions] = values[warp][1];
  int best = 0;
  for (int a = 1; a < shape.actions; ++a)
    if (next[a] > next[best]) best = a;
  const float goal = work.reward[row] + work.discount[row] * values[warp][2][best];
  const int action = work.action[row];
  const float q = values[warp][0][action], error = q - goal, size = fabsf(error);
  const float g = weight *
                  (error < -1  ? -1.0f
                   : error > 1 ? 1.0f
                               : error) *
                  work.params->loss_scale,
              mean = g / static_cast<float>(shape.actions);
  float* const out = work.out_grad + row * (1 + shape.actions);
  if (lane == 0) {
    td_errors[shard * shape.shard_batch + r] = size;
    work.row_loss[row] = weight * (size < 1 ? 0.5f * error * error : size - 0.5f);
    work.row_q[row] = q * share;
    out[0] = g;
  }
  if (lane < shape.actions) out[1 + lane] = (lane == action ? g : 0.0f) - mean;
  float* const grad = work.head_grad + row * features;
  for (int i = 4 * lane; i < shape.head; i += 128) {
    const float4 on = load4(head_features + i), value = load4(job.net + offsets.value + i);
    *reinterpret_cast<float4*>(grad + i) = {on.x > 0 ? g * value.x : 0.0f, on.y > 0 ? g * value.y : 0.0f,
                                            on.z > 0 ? g * value.z : 0.0f, on.w > 0 ? g * value.w : 0.0f};
    float4 sum = {0, 0, 0, 0};
#pragma unroll
    for (int a = 0; a < kMostGpuActions; ++a) {
      const float4 w = load4(job.net + offsets.advantage + (a < shape.actions ? a : 0) * shape.head + i);
      const float by = a < shape.actions ? (a == action ? g : 0.0f) - mean : 0.0f;
      sum = {fmaf(by, w.x, sum.x), fmaf(by, w.y, sum.y), fmaf(by, w.z, sum.z), fmaf(by, w.w, sum.w)};
    }
    const float4 above = load4(head_features + shape.head + i);
    *reinterpret_cast<float4*>(grad + shape.head + i) = {above.x > 0 ? sum.x : 0.0f, above.y > 0 ? sum.y : 0.0f,
                                                         above.z > 0 ? sum.z : 0.0f, above.w > 0 ? sum.w : 0.0f};
  }
}

// ---- backward through the layers ----

template <class BlockShape>
__global__ void __launch_bounds__(BlockShape::kThreads, BlockShape::kBlocksPerSm)
    linear_backward(DqnShape shape, DqnWork work, GemmShape gemm, RowTiles tiles, const float* in, float* out,
                    int64_t weight) {
  TANDEM_SHARED(typename BlockShape::Memory, memory);
  const int first_tile = blockIdx.y * BlockShape::kTilesM, index = blockIdx.z;
  const int first_column = blockIdx.x * BlockShape::kTilesN * kTileColumns;
  const auto row_of = [&](int tile) {
    return (int64_t{index} * shape.count + tiles.group(tile)) * gemm.m + tiles.row(tile);
  };
  linear_backward_block<BlockShape>(
      memory, gemm, tiles, first_tile, first_column, work.jobs[index].net + weight,
      [&](int tile) { return in + row_of(tile) * gemm.k; }, [&](int tile) { return out + row_of(tile) * gemm.n; });
}

template <int kFloat4s>
__global__ void __launch_bounds__(kNormWarps * 32)
    norm_backward(DqnShape shape, DqnWork work, LayerNormBackward layer) {
  const int row = blockIdx.x * kNormWarps + threadIdx.x / 32, job_shard = blockIdx.z;
  if (row >= shape.shard_batch) return;
  float4 g[kFloat4s];
  load_row(layer.dz + (int64_t{job_shard} * shape.shard_batch + row) * layer.width, layer.width, g);
  layer_norm_row_backward(layer, work.jobs[shape.job_of(job_shard)].net, job_shard, row, g, [](int, float4) {});
}

// ---- gradients of the weights, summed along the tree of shards ----

// The net's three matrices, each with its first block.
struct NetGradients {
  struct Of {
    WeightGradient gradient;
    int first_block;
  } of[3];
  int blocks;
};

constexpr int64_t kNoColumn = -1, kLossColumn = -2, kQColumn = -3;

// Biases, norms, the two output layers, then loss and mean Q: number i of them all, and where its gradient goes.
__device__ int64_t column_of(const DqnShape& shape, const DqnOffsets& o, const DqnWork& w, int i, ColumnOf& c) {
  const int outs = 1 + shape.actions, features = 2 * shape.head;
  const int64_t rows = shape.shard_batch;
  const auto norm = [&](const float* dx, const float* dz, const float* normed, int width, int64_t bias, int64_t scale,
                        int64_t shift) -> int64_t {
    const int which = i / width, at = i % width;
    const float* const from = which == 0 ? dx : dz;
    c = {from + at, which == 1 ? normed + at : nullptr, width, width, rows * width, kPasses * rows * width};
    return (which == 0 ? bias : which == 1 ? scale : shift) + at;
  };
  if (i < 3 * shape.hidden1) return norm(w.dx1, w.dz1, w.sums1, shape.hidden1, o.b1, o.scale1, o.shift1);
  i -= 3 * shape.hidden1;
  if (i < 3 * shape.hidden2) return norm(w.dx2, w.dz2, w.sums2, shape.hidden2, o.b2, o.scale2, o.shift2);
  i -= 3 * shape.hidden2;
  if (i < features) {
    c = {w.head_grad + i, nullptr, features, 0, rows * features, 0};
    return o.heads_bias + i;
  }
  i -= features;
  if (i < shape.head) {
    c = {w.out_grad, w.head_features + i, outs, features, rows * outs, kPasses * rows * features};
    return o.value + i;
  }
  i -= shape.head;
  if (i < shape.actions * shape.head) {
    c = {w.out_grad + 1 + i / shape.head, w.head_features + shape.head + i % shape.head, outs, features, rows * outs,
         kPasses * rows * features};
    return o.advantage + i;
  }
  i -= shape.actions * shape.head;
  if (i < outs) {
    c = {w.out_grad + i, nullptr, outs, 0, rows * outs, 0};
    return i == 0 ? o.value_bias : o.advantage_bias + i - 1;
  }
  i -= outs;
  if (i >= 2) return kNoColumn;
  c = {i == 0 ? w.row_loss : w.row_q, nullptr, 1, 0, rows, 0};
  return i == 0 ? kLossColumn : kQColumn;
}

// 32 columns, one to a lane; warp w adds up shard w, then w + kColumnWarps, ... `sums` has room for 32 of each shard.
constexpr int kColumnWarps = 8;
__device__ void column_block(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work, int block, int job,
                             float* gradient, float* tail, float* sums) {
  const int lane = threadIdx.x % 32;
  ColumnOf column{};
  const int64_t at = column_of(shape, offsets, work, block * 32 + lane, column);
  for (int s = threadIdx.x / 32; s < shape.count; s += kColumnWarps)
    sums[32 * s + lane] =
        at == kNoColumn ? 0.0f : column_sum(column, int64_t{job} * shape.count + s, shape.shard_batch);
  __syncthreads();
  if (threadIdx.x >= 32 || at == kNoColumn) return;
  TreeStack<1, kMostGpuDepth> stack;
  for (int s = 0; s < shape.count; ++s) stack.push({sums[32 * s + lane]}, shape.merges[s]);
  float* const loss_and_q = tail ? tail + int64_t{job} * (2 + shape.batch) : work.job_sums + 2 * job;
  (at == kLossColumn ? loss_and_q[0] : at == kQColumn ? loss_and_q[1] : gradient[at]) = stack.top()[0];
}

__global__ void __launch_bounds__(kColumnWarps * 32, 3)
    column_gradients(DqnShape shape, DqnOffsets offsets, DqnWork work, float* gradient, float* tail) {
  __shared__ float sums[32 * 32];
  const int job = blockIdx.y;
  column_block(shape, offsets, work, blockIdx.x, job, gradient + work.jobs[job].offset, tail, sums);
}

// The columns' blocks come first, where they are in this launch.
template <bool kPaired, class BlockShape>
__global__ void __launch_bounds__(BlockShape::kThreads, BlockShape::kBlocksPerSm)
    weight_gradients(DqnShape shape, DqnOffsets offsets, DqnWork work, NetGradients matrices, float* gradient,
                     float* tail) {
  TANDEM_SHARED(typename BlockShape::Memory, memory);
  const int job = blockIdx.y, block = static_cast<int>(blockIdx.x) - (static_cast<int>(gridDim.x) - matrices.blocks);
  float* const to = gradient + work.jobs[job].offset;
  if constexpr (BlockShape::kTilesN == 1) {
    static_assert(BlockShape::kWarps == kColumnWarps);
    if (block < 0) {
      column_block(shape, offsets, work, blockIdx.x, job, to, tail, memory.partials);
      return;
    }
  }
  int which = 0;
  while (which < 2 && block >= matrices.of[which + 1].first_block) ++which;
  const NetGradients::Of& m = matrices.of[which];
  if constexpr (kPaired)
    weight_gradient_pairs<BlockShape>(memory, m.gradient, int64_t{job} * kPairedShards, shape.shard_batch,
                                      block - m.first_block, to);
  else
    weight_gradient_tree<BlockShape, kMostGpuDepth>(memory, m.gradient, int64_t{job} * shape.count, shape.count,
                                                    shape.shard_batch, shape.merges, block - m.first_block, to);
}

bool is_paired(const DqnShape& shape) {
  constexpr int kMerges[kPairedShards] = {0, 1, 0, 2, 0, 1, 0, 3};
  return shape.count == kPairedShards && std::equal(kMerges, kMerges + kPairedShards, shape.merges);
}

// From the heads' gradient to that of the first layer's sums.
void queue_backward(const DqnShape& shape, const DqnOffsets& o, const DqnWork& w, CUstream_st* stream) {
  if (queue_fused_backward(shape, o, w, stream)) return;
  const auto linear = [&](const float* in, float* out, int64_t weight, int in_width, int out_width) {
    const GemmShape gemm{shape.count, shape.shard_batch, out_width, in_width, shape.jobs};
    const RowTiles tiles(gemm.groups, gemm.m);
    with_block_shape(shape.blocks, gemm.tiles(), has_full_blocks(gemm), [&](auto chosen) {
      using BlockShape = decltype(chosen);
      TANDEM_LAUNCH_WITH(
          sizeof(typename BlockShape::Memory), "dqn linear backward", linear_backward<BlockShape>,
          dim3(ceil_div(gemm.n, kTileColumns) / BlockShape::kTilesN, tiles.blocks(BlockShape::kTilesM), gemm.batch),
          dim3(BlockShape::kThreads), stream, shape, w, gemm, tiles, in, out, weight);
    });
  };
  const auto norm = [&](const LayerNormBackward& layer) {
    with_float4s(layer.width, [&](auto float4s) {
      TANDEM_LAUNCH("dqn norm backward", norm_backward<float4s.value>,
                    dim3(ceil_div(shape.shard_batch, kNormWarps), 1, shape.job_shards()), dim3(kNormWarps * 32), stream,
                    shape, w, layer);
    });
  };
  linear(w.head_grad, w.dz2, o.heads, 2 * shape.head, shape.hidden2);
  norm(second_norm_backward(shape, o, w));
  linear(w.dx2, w.dz1, o.w2, shape.hidden2, shape.hidden1);
  norm(first_norm_backward(shape, o, w));
}

}  // namespace

void queue_learn(const DqnShape& shape, const DqnOffsets& o, const DqnWork& w, float* gradient, float* tail,
                 CUstream_st* stream) {
  queue_forward(shape, o, w, stream);
  const dim3 of_rows(ceil_div(shape.shard_batch, kLossRows), shape.job_shards());
  if (static_cast<int>(of_rows.x * of_rows.y) <= 2 * sm_count())
    TANDEM_LAUNCH("dqn loss", loss<4>, of_rows, dim3(kLossWarps<4> * 32), stream, shape, o, w, tail);
  else
    TANDEM_LAUNCH("dqn loss", loss<3>, of_rows, dim3(kLossWarps<3> * 32), stream, shape, o, w, tail);
  queue_backward(shape, o, w, stream);
  const int rows = shape.shard_batch;
  NetGradients matrices{
      {{{w.dx1, w.states, int64_t{2} * rows * shape.state, o.w1, shape.hidden1, shape.state}, 0},
       {{w.dx2, w.out1, int64_t{rows} * shape.hidden1, o.w2, shape.hidden2, shape.hidden1}, 0},
       {{w.head_grad, w.out2, int64_t{rows} * shape.hidden2, o.heads, 2 * shape.head, shape.hidden2}, 0}},
      0};
  const int columns =
      3 * shape.hidden1 + 3 * shape.hidden2 + 2 * shape.head + (1 + shape.actions) * shape.head + 1 + shape.actions + 2;
  const auto launch = [&](auto kernel, auto chosen) {
    using BlockShape = decltype(chosen);
    matrices.blocks = 0;
    for (NetGradients::Of& m : matrices.of) {
      m.first_block = matrices.blocks;
      matrices.blocks += static_cast<int>(ceil_div(m.gradient.out, BlockShape::kTilesM * kTileRows) *
                                          ceil_div(m.gradient.in, BlockShape::kTilesN * kTileColumns));
    }
    const bool here = BlockShape::kTilesN == 1;  // 2 x 2 tiles take more of an SM than columns need
    if (!here)
      TANDEM_LAUNCH("dqn columns", column_gradients, dim3(ceil_div(columns, 32), shape.jobs), dim3(kColumnWarps * 32),
                    stream, shape, o, w, gradient, tail);
    TANDEM_LAUNCH_WITH(sizeof(typename BlockShape::Memory), "dqn weights", kernel,
                       dim3((here ? ceil_div(columns, 32) : 0) + matrices.blocks, shape.jobs),
                       dim3(BlockShape::kThreads), stream, shape, o, w, matrices, gradient, tail);
  };
  int64_t tiles = 0;
  bool full = divides(kSliceK, rows);
  for (const NetGradients::Of& m : matrices.of) {
    tiles += int64_t{ceil_div(m.gradient.out, kTileRows)} * ceil_div(m.gradient.in, kTileColumns);
    full = full && divides(2 * kTileRows, m.gradient.out) && divides(2 * kTileColumns, m.gradient.in);
  }
  if (is_paired(shape))
    with_block_shape(shape.blocks, shape.jobs * tiles, full,
                     [&](auto chosen) { launch(weight_gradients<true, decltype(chosen)>, chosen); });
  else
    with_precision(shape.blocks.precision, [&](auto precision) {
      launch(weight_gradients<false, OneTile<precision.value>>, OneTile<precision.value>{});
    });
}

}  // namespace tandem::cuda
