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
// Q_online(s), Q_online(s') and Q_target(s'), which are passes 0, 1 and 2; a fourth warp computes the importance
// weight, or one of the three does where blocks of four warps a row would exceed one wave.
constexpr int kLossRows = 4;  // of a block
template <int kWarpsPerRow>
constexpr int kLossWarps = kWarpsPerRow* kLossRows;

__device__ int64_t warp_min(int64_t x) {
#pragma unroll
  for (int lane_mask = 16; lane_mask > 0; lane_mask /= 2) {
    const int64_t other = __shfl_xor_sync(kFullMask, x, lane_mask);
    x = other < x ? other : x;
  }
  return x;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int kLossBlocks = 2;  // on an SM, with three warps a row
#else
constexpr int kLossBlocks = 3;
#endif
// Grid: (blocks of kLossRows rows of a shard, agent shards). Warp w computes the Q values of row w % kLossRows in pass
// w / kLossRows; after the barrier warps 0 to kLossRows - 1 finish a row each.
//
// One function of more than 60 lines: __launch_bounds__ leaves it few registers, and a split could change how the
// compiler allocates them.
template <int kWarpsPerRow>
__global__ void __launch_bounds__(kLossWarps<kWarpsPerRow> * 32, kWarpsPerRow == 4 ? 2 : kLossBlocks)
    loss(DqnShape shape, DqnOffsets offsets, DqnWork work, float* tail) {
  constexpr int kWarps = kLossWarps<kWarpsPerRow>;
  __shared__ int64_t warp_minima[kWarps];
  __shared__ float q_values[kLossRows][kPasses][kMaxGpuActions], importance_weights[kLossRows];
  const int agent_shard = blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int agent_index = shape.agent_of(agent_shard),
            shard = agent_shard - agent_index * shape.local_shards + shape.first_shard;
  const GpuDqnAgent& agent = work.agents[agent_index];
  const int features = 2 * shape.head, first_row = blockIdx.x * kLossRows;
  int64_t min_priority = kLargestPriority + 1;
  if (tail) {  // several workers: known before
    min_priority = *agent.min_drawn_priority;
  } else {  // this worker has all shards
    const int64_t* const priorities = work.priority + int64_t{agent_index} * shape.batch;
    for (int k = threadIdx.x; k < shape.batch; k += kWarps * 32)
      min_priority = priorities[k] < min_priority ? priorities[k] : min_priority;
    min_priority = warp_min(min_priority);
    if (lane == 0) warp_minima[warp] = min_priority;
    __syncthreads();  // the minima of all warps
#pragma unroll
    for (int w = 0; w < kWarps; ++w) min_priority = warp_minima[w] < min_priority ? warp_minima[w] : min_priority;
    if (threadIdx.x == 0 && blockIdx.x == 0 && agent_shard == agent_index * shape.local_shards)
      *agent.min_drawn_priority = min_priority;
  }
  if (const int pass = warp / kLossRows, r = first_row + warp % kLossRows; r < shape.shard_batch) {
    if (pass < kPasses) {
      float q[kMaxGpuActions];
      q_values_of<kWarpsPerRow == 4>(
          shape, offsets, pass == 2 ? agent.target : agent.net,
          work.head_features + ((int64_t{agent_shard} * kPasses + pass) * shape.shard_batch + r) * features, q);
#pragma unroll
      for (int a = 0; a < kMaxGpuActions; ++a)
        if (lane == a) q_values[warp % kLossRows][pass][a] = q[a];
    }
    if (pass == kWarpsPerRow - 1 && lane == 0)
      importance_weights[warp % kLossRows] = importance_weight(
          work.priority[int64_t{agent_shard} * shape.shard_batch + r], min_priority, work.params->beta);
  }
  __syncthreads();  // all Q values and weights of the block's rows
  const int r = first_row + warp;
  if (warp >= kLossRows || r >= shape.shard_batch) return;
  const float inverse_batch = static_cast<float>(1 / static_cast<double>(shape.batch));
  float* const td_errors = tail ? tail + int64_t{agent_index} * (2 + shape.batch) + 2 : agent.td_errors;
  const int64_t row = int64_t{agent_shard} * shape.shard_batch + r;
  const float* const head_features =
      work.head_features + (int64_t{agent_shard} * kPasses * shape.shard_batch + r) * features;
  const float weight = importance_weights[warp] * inverse_batch;  // of this row in the batch's mean loss
  const float(&next_q)[kMaxGpuActions] = q_values[warp][1];
  int best = 0;
  for (int a = 1; a < shape.actions; ++a)
    if (next_q[a] > next_q[best]) best = a;
  const float td_target = work.reward[row] + work.discount[row] * q_values[warp][2][best];
  const int action = work.action[row];
  const float q = q_values[warp][0][action], td_error = q - td_target, abs_error = fabsf(td_error);
  const float q_grad = weight *
                       (td_error < -1  ? -1.0f
                        : td_error > 1 ? 1.0f
                                       : td_error) *
                       work.params->loss_scale,
              mean_q_grad = q_grad / static_cast<float>(shape.actions);
  float* const value_advantage_grad = work.out_grad + row * (1 + shape.actions);
  if (lane == 0) {
    td_errors[shard * shape.shard_batch + r] = abs_error;
    work.row_loss[row] = weight * (abs_error < 1 ? 0.5f * td_error * td_error : abs_error - 0.5f);
    work.row_q[row] = q * inverse_batch;
    value_advantage_grad[0] = q_grad;
  }
  if (lane < shape.actions) value_advantage_grad[1 + lane] = (lane == action ? q_grad : 0.0f) - mean_q_grad;
  float* const grad = work.head_grad + row * features;
  for (int i = 4 * lane; i < shape.head; i += 128) {
    const float4 value_features = load4(head_features + i), value = load4(agent.net + offsets.value + i);
    *reinterpret_cast<float4*>(grad + i) = {
        value_features.x > 0 ? q_grad * value.x : 0.0f, value_features.y > 0 ? q_grad * value.y : 0.0f,
        value_features.z > 0 ? q_grad * value.z : 0.0f, value_features.w > 0 ? q_grad * value.w : 0.0f};
    float4 sum = {0, 0, 0, 0};  // of each action's gradient times its weights
#pragma unroll
    for (int a = 0; a < kMaxGpuActions; ++a) {
      const float4 weight4 = load4(agent.net + offsets.advantage + (a < shape.actions ? a : 0) * shape.head + i);
      const float advantage_grad = a < shape.actions ? (a == action ? q_grad : 0.0f) - mean_q_grad : 0.0f;
      sum = {fmaf(advantage_grad, weight4.x, sum.x), fmaf(advantage_grad, weight4.y, sum.y),
             fmaf(advantage_grad, weight4.z, sum.z), fmaf(advantage_grad, weight4.w, sum.w)};
    }
    const float4 advantage_features = load4(head_features + shape.head + i);
    *reinterpret_cast<float4*>(grad + shape.head + i) = {
        advantage_features.x > 0 ? sum.x : 0.0f, advantage_features.y > 0 ? sum.y : 0.0f,
        advantage_features.z > 0 ? sum.z : 0.0f, advantage_features.w > 0 ? sum.w : 0.0f};
  }
}

// ---- backward through the layers ----

// The gradient of a linear layer's input, `out`, from that of its output, `in`. Grid: (blocks of columns, blocks of
// rows, agents).
template <class BlockShape>
__global__ void __launch_bounds__(BlockShape::kThreads, BlockShape::kBlocksPerSm)
    linear_backward(DqnShape shape, DqnWork work, GemmShape gemm, RowTiles tiles, const float* in, float* out,
                    int64_t weight) {
  TANDEM_SHARED(typename BlockShape::Memory, memory);
  const int first_tile = blockIdx.y * BlockShape::kTilesM, agent = blockIdx.z;
  const int first_column = blockIdx.x * BlockShape::kTilesN * kTileColumns;
  const auto row_of = [&](int tile) {
    return (int64_t{agent} * shape.local_shards + tiles.group(tile)) * gemm.m + tiles.row(tile);
  };
  linear_backward_block<BlockShape>(
      memory, gemm, tiles, first_tile, first_column, work.agents[agent].net + weight,
      [&](int tile) { return in + row_of(tile) * gemm.k; }, [&](int tile) { return out + row_of(tile) * gemm.n; });
}

// Grid: (blocks of kNormWarps rows, 1, agent shards), a warp to a row.
template <int kFloat4s>
__global__ void __launch_bounds__(kNormWarps * 32)
    norm_backward(DqnShape shape, DqnWork work, LayerNormBackward layer) {
  const int row = blockIdx.x * kNormWarps + threadIdx.x / 32, agent_shard = blockIdx.z;
  if (row >= shape.shard_batch) return;
  float4 out_grad[kFloat4s];
  load_row(layer.norm_out_grad + (int64_t{agent_shard} * shape.shard_batch + row) * layer.width, layer.width, out_grad);
  layer_norm_row_backward(layer, work.agents[shape.agent_of(agent_shard)].net, agent_shard, row, out_grad,
                          [](int, float4) {});
}

// ---- gradients of the weights, summed along the tree of shards ----

// The net's three weight matrices, and the first of the blocks that compute each one's gradient; blocks of all three.
struct NetGradients {
  struct Matrix {
    WeightGradient gradient;
    int first_block;
  } matrices[3];
  int blocks;
};

constexpr int64_t kNoColumn = -1, kLossColumn = -2, kQColumn = -3;

// All else that is a sum over rows: biases, norms, the two output layers, then loss and mean Q. Column i of them all
// goes to `c`; the offset of its gradient among the weights, or one of the constants above, is returned.
__device__ int64_t column_of(const DqnShape& shape, const DqnOffsets& o, const DqnWork& w, int i, ColumnView& c) {
  const int outputs = 1 + shape.actions, features = 2 * shape.head;
  const int64_t rows = shape.shard_batch;
  const auto norm = [&](const float* preact_grad, const float* norm_out_grad, const float* normed, int width,
                        int64_t bias, int64_t scale, int64_t shift) -> int64_t {
    const int which = i / width, column = i % width;
    const float* const grad = which == 0 ? preact_grad : norm_out_grad;
    c = {grad + column, which == 1 ? normed + column : nullptr, width, width, rows * width, kPasses * rows * width};
    return (which == 0 ? bias : which == 1 ? scale : shift) + column;
  };
  if (i < 3 * shape.hidden1)
    return norm(w.preact_grad1, w.norm_out_grad1, w.preact1, shape.hidden1, o.b1, o.scale1, o.shift1);
  i -= 3 * shape.hidden1;
  if (i < 3 * shape.hidden2)
    return norm(w.preact_grad2, w.norm_out_grad2, w.preact2, shape.hidden2, o.b2, o.scale2, o.shift2);
  i -= 3 * shape.hidden2;
  if (i < features) {
    c = {w.head_grad + i, nullptr, features, 0, rows * features, 0};
    return o.heads_bias + i;
  }
  i -= features;
  if (i < shape.head) {
    c = {w.out_grad, w.head_features + i, outputs, features, rows * outputs, kPasses * rows * features};
    return o.value + i;
  }
  i -= shape.head;
  if (i < shape.actions * shape.head) {
    c = {w.out_grad + 1 + i / shape.head,
         w.head_features + shape.head + i % shape.head,
         outputs,
         features,
         rows * outputs,
         kPasses * rows * features};
    return o.advantage + i;
  }
  i -= shape.actions * shape.head;
  if (i < outputs) {
    c = {w.out_grad + i, nullptr, outputs, 0, rows * outputs, 0};
    return i == 0 ? o.value_bias : o.advantage_bias + i - 1;
  }
  i -= outputs;
  if (i >= 2) return kNoColumn;
  c = {i == 0 ? w.row_loss : w.row_q, nullptr, 1, 0, rows, 0};
  return i == 0 ? kLossColumn : kQColumn;
}

// The sums of 32 columns, one to a lane: warp w adds up shard w, then w + kColumnWarps, ...; warp 0 adds the shards'
// along their tree. shard_sums: shared memory, [local_shards][32].
constexpr int kColumnWarps = 8;
__device__ void column_block(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work, int block,
                             int agent, float* gradient, float* tail, float* shard_sums) {
  const int lane = threadIdx.x % 32;
  ColumnView column{};
  const int64_t offset = column_of(shape, offsets, work, block * 32 + lane, column);
  for (int s = threadIdx.x / 32; s < shape.local_shards; s += kColumnWarps)
    shard_sums[32 * s + lane] =
        offset == kNoColumn ? 0.0f : column_sum(column, int64_t{agent} * shape.local_shards + s, shape.shard_batch);
  __syncthreads();  // the sums of all shards
  if (threadIdx.x >= 32 || offset == kNoColumn) return;
  TreeStack<1, kMaxGpuPending> stack;
  for (int s = 0; s < shape.local_shards; ++s) stack.push({shard_sums[32 * s + lane]}, shape.merges[s]);
  float* const loss_and_q = tail ? tail + int64_t{agent} * (2 + shape.batch) : work.agent_sums + 2 * agent;
  (offset == kLossColumn ? loss_and_q[0] : offset == kQColumn ? loss_and_q[1] : gradient[offset]) = stack.top()[0];
}

// Grid: (blocks of 32 columns, agents).
__global__ void __launch_bounds__(kColumnWarps * 32, 3)
    column_gradients(DqnShape shape, DqnOffsets offsets, DqnWork work, float* gradient, float* tail) {
  __shared__ float shard_sums[32 * 32];  // at most 32 shards
  const int agent = blockIdx.y;
  column_block(shape, offsets, work, blockIdx.x, agent, gradient + work.agents[agent].offset, tail, shard_sums);
}

// Grid: (blocks, agents). The blocks of columns come first, where they are in this launch; then those of the three
// matrices. kPaired: eight shards whose tree is pairs (weight_gradient_pairs()).
template <bool kPaired, class BlockShape>
__global__ void __launch_bounds__(BlockShape::kThreads, BlockShape::kBlocksPerSm)
    weight_gradients(DqnShape shape, DqnOffsets offsets, DqnWork work, NetGradients net, float* gradient, float* tail) {
  TANDEM_SHARED(typename BlockShape::Memory, memory);
  const int agent = blockIdx.y, block = static_cast<int>(blockIdx.x) - (static_cast<int>(gridDim.x) - net.blocks);
  float* const agent_gradient = gradient + work.agents[agent].offset;
  if constexpr (BlockShape::kTilesN == 1) {
    static_assert(BlockShape::kWarps == kColumnWarps);
    if (block < 0) {
      column_block(shape, offsets, work, blockIdx.x, agent, agent_gradient, tail, memory.partials);
      return;
    }
  }
  int which = 0;
  while (which < 2 && block >= net.matrices[which + 1].first_block) ++which;
  const NetGradients::Matrix& matrix = net.matrices[which];
  if constexpr (kPaired)
    weight_gradient_pairs<BlockShape>(memory, matrix.gradient, int64_t{agent} * kPairedShards, shape.shard_batch,
                                      block - matrix.first_block, agent_gradient);
  else
    weight_gradient_tree<BlockShape, kMaxGpuPending>(memory, matrix.gradient, int64_t{agent} * shape.local_shards,
                                                     shape.local_shards, shape.shard_batch, shape.merges,
                                                     block - matrix.first_block, agent_gradient);
}

bool is_paired(const DqnShape& shape) {
  constexpr int kMerges[kPairedShards] = {0, 1, 0, 2, 0, 1, 0, 3};
  return shape.local_shards == kPairedShards && std::equal(kMerges, kMerges + kPairedShards, shape.merges);
}

// From the gradient of the head features to that of the first layer's pre-activations.
void queue_backward(const DqnShape& shape, const DqnOffsets& o, const DqnWork& w, CUstream_st* stream) {
  if (queue_fused_backward(shape, o, w, stream)) return;
  const auto linear = [&](const float* in, float* out, int64_t weight, int in_width, int out_width) {
    const GemmShape gemm{shape.local_shards, shape.shard_batch, out_width, in_width, shape.agents};
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
                    dim3(ceil_div(shape.shard_batch, kNormWarps), 1, shape.agent_shards()), dim3(kNormWarps * 32),
                    stream, shape, w, layer);
    });
  };
  linear(w.head_grad, w.norm_out_grad2, o.heads, 2 * shape.head, shape.hidden2);
  norm(second_norm_backward(shape, o, w));
  linear(w.preact_grad2, w.norm_out_grad1, o.w2, shape.hidden2, shape.hidden1);
  norm(first_norm_backward(shape, o, w));
}

}  // namespace

void queue_learn(const DqnShape& shape, const DqnOffsets& o, const DqnWork& w, float* gradient, float* tail,
                 CUstream_st* stream) {
  queue_forward(shape, o, w, stream);
  const dim3 loss_grid(ceil_div(shape.shard_batch, kLossRows), shape.agent_shards());
  if (static_cast<int>(loss_grid.x * loss_grid.y) <= 2 * sm_count())
    TANDEM_LAUNCH("dqn loss", loss<4>, loss_grid, dim3(kLossWarps<4> * 32), stream, shape, o, w, tail);
  else
    TANDEM_LAUNCH("dqn loss", loss<3>, loss_grid, dim3(kLossWarps<3> * 32), stream, shape, o, w, tail);
  queue_backward(shape, o, w, stream);
  const int rows = shape.shard_batch;
  NetGradients net{{{{w.preact_grad1, w.states, int64_t{2} * rows * shape.observation_size, o.w1, shape.hidden1,
                      shape.observation_size},
                     0},
                    {{w.preact_grad2, w.out1, int64_t{rows} * shape.hidden1, o.w2, shape.hidden2, shape.hidden1}, 0},
                    {{w.head_grad, w.out2, int64_t{rows} * shape.hidden2, o.heads, 2 * shape.head, shape.hidden2}, 0}},
                   0};
  const int columns =
      3 * shape.hidden1 + 3 * shape.hidden2 + 2 * shape.head + (1 + shape.actions) * shape.head + 1 + shape.actions + 2;
  const auto launch = [&](auto kernel, auto chosen) {
    using BlockShape = decltype(chosen);
    net.blocks = 0;
    for (NetGradients::Matrix& matrix : net.matrices) {
      matrix.first_block = net.blocks;
      net.blocks += static_cast<int>(ceil_div(matrix.gradient.out, BlockShape::kTilesM * kTileRows) *
                                     ceil_div(matrix.gradient.in, BlockShape::kTilesN * kTileColumns));
    }
    // Blocks of 2 x 2 tiles take more of an SM than columns need, so these get a launch of their own.
    const bool with_columns = BlockShape::kTilesN == 1;
    if (!with_columns)
      TANDEM_LAUNCH("dqn columns", column_gradients, dim3(ceil_div(columns, 32), shape.agents), dim3(kColumnWarps * 32),
                    stream, shape, o, w, gradient, tail);
    TANDEM_LAUNCH_WITH(sizeof(typename BlockShape::Memory), "dqn weights", kernel,
                       dim3((with_columns ? ceil_div(columns, 32) : 0) + net.blocks, shape.agents),
                       dim3(BlockShape::kThreads), stream, shape, o, w, net, gradient, tail);
  };
  int64_t tiles = 0;
  bool full = divides(kSliceK, rows);
  for (const NetGradients::Matrix& matrix : net.matrices) {
    tiles += int64_t{ceil_div(matrix.gradient.out, kTileRows)} * ceil_div(matrix.gradient.in, kTileColumns);
    full = full && divides(2 * kTileRows, matrix.gradient.out) && divides(2 * kTileColumns, matrix.gradient.in);
  }
  if (is_paired(shape))
    with_block_shape(shape.blocks, shape.agents * tiles, full,
                     [&](auto chosen) { launch(weight_gradients<true, decltype(chosen)>, chosen); });
  else
    with_precision(shape.blocks.precision, [&](auto precision) {
      launch(weight_gradients<false, OneTile<precision.value>>, OneTile<precision.value>{});
    });
}

}  // namespace tandem::cuda
