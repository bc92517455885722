// rl/dqn/gpu/fused_net.cu -- the dueling net as a fused MLP (kernels/gpu/fused_mlp_layers.h): what many rows take
// instead of layer by layer; backward too, where weights are packed.
#include "kernels/gpu/fused_mlp_layers.h"
#include "rl/dqn/gpu/dqn_kernels.h"
#include "rl/dqn/gpu/dueling_head.h"
#include "rl/dqn/gpu/net_norms.h"
#include "rl/dqn/gpu/packed_net.h"

namespace tandem::cuda {
namespace {

// Forward of `rows` rows of every agent shard and pass.
struct NetPass {
  const float* in;
  int in_passes, passes, rows;  // rows: of a shard
  int64_t target_offset;        // from a net's packed weights to its target network's
  MlpShape mlp;
};

// Learning, the head features are kept for the loss; acting, the action is chosen at once. Grid: (blocks of rows of a
// agent, passes, agents); one block on an SM. Warps own rows as WarpRows says.
//
// One function of more than 60 lines: the lane_... values are computed while its first loads are in flight, and live in
// registers to its end.
template <class Block, bool kLearning>
__global__ void __launch_bounds__(Block::kThreads, 1)
    forward_rows(DqnShape shape, DqnOffsets offsets, DqnWork work, NetPass net_pass) {
#if defined(TANDEM_FUSED_MLP)
  TANDEM_SHARED(typename Block::Memory, memory);
  constexpr int kRowsPerWarp = Block::kRowsPerWarp;
  const int pass = blockIdx.y, agent_index = blockIdx.z, lane = threadIdx.x % 32;
  const GpuDqnAgent& agent = work.agents[agent_index];
  const float* const net = pass == 2 ? agent.target : agent.net;
  const bool keep = kLearning && pass == 0;
  const WarpRows<Block> rows(agent_index * shape.local_shards, shape.local_shards, net_pass.rows);
  const uint32_t lane_shard_id = rows.lane_shard >= 0 ? work.environments[rows.lane_shard].shard : 0;
  const MaskShape mask = dropout_shape(shape.dropout);
  int lane_explored = -1;  // lane i's row's random action, if it takes one
  int64_t lane_leaf = 0;
  {
    const int in_pass = pass < net_pass.in_passes ? pass : net_pass.in_passes - 1;
    const int64_t lane_src =
        rows.lane_shard < 0
            ? -1
            : ((int64_t{rows.lane_shard} * net_pass.in_passes + in_pass) * net_pass.rows + rows.lane_row) *
                  shape.observation_size;
    int64_t src[kRowsPerWarp];
#pragma unroll
    for (int i = 0; i < kRowsPerWarp; ++i) src[i] = __shfl_sync(kFullMask, lane_src, i);
#pragma unroll 1
    for (int column = lane * 4; column < shape.observation_size; column += 128) {
      float4 x[kRowsPerWarp];  // all loads in flight together
#pragma unroll
      for (int i = 0; i < kRowsPerWarp; ++i)
        x[i] = src[i] < 0 ? float4{0, 0, 0, 0} : *reinterpret_cast<const float4*>(net_pass.in + src[i] + column);
      if constexpr (!kLearning)
        if (column == lane * 4 && rows.lane_shard >= 0) {  // while the loads are in flight
          lane_leaf = next_leaf(shape, work.shards[rows.lane_shard], rows.lane_row);
          lane_explored = explored_action(shape, work, rows.lane_shard, rows.lane_row);
        }
#pragma unroll
      for (int i = 0; i < kRowsPerWarp; ++i)
        memory.store_operand(shape.observation_size, rows.row_in_block(i), column, x[i]);
    }
    if constexpr (!kLearning) {
#pragma unroll 1
      for (int i = 0; i < kRowsPerWarp; ++i) {
        const int agent_shard = rows.shard(i), row = rows.row(i);
        const int64_t leaf = __shfl_sync(kFullMask, lane_leaf, i);
        if (agent_shard >= 0) store_observation(shape, work, agent_shard, row, leaf);
      }
    }
  }
  const PackedFragment* packed = nullptr;
  if constexpr (!Block::k32Bit) packed = packed_of(shape, work, agent_index) + (pass == 2 ? net_pass.target_offset : 0);
  mlp_forward<Block>(memory, rows, net_pass.mlp, net, packed, shape.epsilon_norm, shape.dropout, mask, keep,
                     [&](uint32_t site, int i, int agent_shard, int row, int width) {
                       RandomKey key = work.params->key;
                       key.site = site;
                       key.shard = __shfl_sync(kFullMask, lane_shard_id, i);
                       return work.dropout_bits ? *dropout_bits_at(shape, work, site, agent_shard, row)
                                                : draw_dropout_bits(key, row, width, mask);
                     });
  const int features = 2 * shape.head;
  if constexpr (kLearning) {
    float* dst[kRowsPerWarp];  // null: beyond the last row
#pragma unroll
    for (int i = 0; i < kRowsPerWarp; ++i) {
      const int agent_shard = rows.shard(i), row = rows.row(i);
      dst[i] = agent_shard < 0 ? nullptr
                               : work.head_features +
                                     ((int64_t{agent_shard} * net_pass.passes + pass) * net_pass.rows + row) * features;
    }
#pragma unroll 1
    for (int column = lane * 4; column < features; column += 128)
#pragma unroll
      for (int i = 0; i < kRowsPerWarp; ++i)
        if (dst[i])
          *reinterpret_cast<float4*>(dst[i] + column) =
              relu4(*reinterpret_cast<const float4*>(memory.output(features, rows.row_in_block(i)) + column));
  } else {
#pragma unroll 1
    for (int i = 0; i < kRowsPerWarp; ++i) {
      const int agent_shard = rows.shard(i), row = rows.row(i), explored = __shfl_sync(kFullMask, lane_explored, i);
      if (agent_shard < 0) continue;
      float* const head_features = memory.output(features, rows.row_in_block(i));
      for (int column = lane * 4; column < features; column += 128)
        *reinterpret_cast<float4*>(head_features + column) =
            relu4(*reinterpret_cast<const float4*>(head_features + column));
      __syncwarp();  // the features of all lanes are in shared memory
      decide_row(shape, offsets, work, net, agent_shard, row, explored, head_features);
    }
  }
#endif
}

template <bool kLearning>
NetPass pass_of(const DqnShape& shape, const DqnOffsets& o, const DqnWork& w) {
  const int passes = kLearning ? 3 : 1, rows = kLearning ? shape.shard_batch : shape.environments;
  const PackedNetLayout packed(shape);
  NetPass pass{.in = kLearning ? w.states : w.observed,
               .in_passes = kLearning ? 2 : 1,
               .passes = passes,
               .rows = rows,
               .target_offset = packed.per_net,
               .mlp = {}};
  const LayerNorm norm1 = first_norm(shape, o, w, passes, rows, kLearning),
                  norm2 = second_norm(shape, o, w, passes, rows, kLearning);
  pass.mlp.count = 3;
  pass.mlp.layers[0] = {o.w1, packed.w1, o.b1, shape.observation_size, shape.hidden1, norm1};
  pass.mlp.layers[1] = {o.w2, packed.w2, o.b2, shape.hidden1, shape.hidden2, norm2};
  pass.mlp.layers[2] = {o.heads, packed.heads, o.heads_bias, shape.hidden2, 2 * shape.head, {}};
  return pass;
}

// Calls call(block) with the block (fused_mlp.h) that a pass takes; false: it takes none.
template <bool kLearning, class Call>
bool with_blocks(const DqnShape& shape, const DqnWork& work, const NetPass& pass, Call call) {
  // Rows from which it is faster, measured; in acting it saves the launch of the decision, too. With packed weights the
  // rows of one agent suffice.
  const int min_rows = is_16bit(shape.blocks.precision) ? kLearning ? 768 : 256 : kLearning ? 1024 : 768;
  return with_row_block(
      shape.blocks, int64_t{pass.passes} * shape.agents, shape.local_shards * pass.rows, min_rows,
      [&](auto block) { return (block.k32Bit || work.packed) && pass.mlp.template fits<decltype(block)>(); },
      [](auto block) { return forward_rows<decltype(block), kLearning>; }, call);
}

template <bool kLearning>
bool queue_pass(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work, CUstream_st* stream) {
  const NetPass pass = pass_of<kLearning>(shape, offsets, work);
  return with_blocks<kLearning>(shape, work, pass, [&](auto block) {
    using Block = decltype(block);
    if (!Block::k32Bit && !work.packed_resident) queue_pack_weights(shape, offsets, work, stream);
    TANDEM_LAUNCH_WITH(sizeof(typename Block::Memory), "dqn forward", (forward_rows<Block, kLearning>),
                       dim3(ceil_div(int64_t{shape.local_shards} * pass.rows, Block::kRows), pass.passes, shape.agents),
                       dim3(Block::kThreads), stream, shape, offsets, work, pass);
  });
}

// ---- backward ----

// Grid: (blocks of rows of an agent, 1, agents); one row to a warp.
template <class Block>
__global__ void __launch_bounds__(Block::kThreads, 1)
    backward_rows(DqnShape shape, DqnWork work, MlpBackwardShape mlp) {
#if defined(TANDEM_FUSED_MLP)
  TANDEM_SHARED(typename Block::Memory, memory);
  const int agent_index = blockIdx.z, lane = threadIdx.x % 32;
  const WarpRows<Block> rows(agent_index * shape.local_shards, shape.local_shards, shape.shard_batch);
  const int block_row = rows.row_in_block(0), agent_shard = rows.shard(0), row = rows.row(0),
            features = mlp.layers[0].in;
  const float* const src = work.head_grad + (int64_t{agent_shard} * shape.shard_batch + row) * features;
  for (int column = lane * 4; column < features; column += 128)
    memory.store_operand(features, block_row, column,
                         agent_shard < 0 ? float4{0, 0, 0, 0} : *reinterpret_cast<const float4*>(src + column));
  mlp_backward<Block>(memory, rows, mlp, work.agents[agent_index].net, packed_of(shape, work, agent_index));
#endif
}

MlpBackwardShape backward_of(const DqnShape& shape, const DqnOffsets& o, const DqnWork& w) {
  const PackedNetLayout packed(shape);
  return {2,
          {{packed.backward_heads, 2 * shape.head, second_norm_backward(shape, o, w)},
           {packed.backward2, shape.hidden2, first_norm_backward(shape, o, w)}}};
}

// As with_blocks().
template <class Call>
bool with_blocks_backward(const DqnShape& shape, const DqnWork& work, const MlpBackwardShape& mlp, Call call) {
  constexpr int64_t kMinRows = 256;  // measured
  const int64_t rows = int64_t{shape.local_shards} * shape.shard_batch;
  bool taken = false;
  with_precision(shape.blocks.precision, [&](auto precision) {
    using Block = Rows16<precision.value>;
    if constexpr (!Block::k32Bit) {
      const bool asked = shape.blocks.rows == Block::kRows,
                 suits = shape.blocks.rows == 0 && shape.blocks.tiles == 0 && shape.agents * rows >= kMinRows &&
                         shape.agents * int64_t{ceil_div(rows, Block::kRows)} <= sm_count();
      taken = (asked || suits) && work.packed && mlp.template fits<Block>() && has_code(backward_rows<Block>, !asked) &&
              blocks_per_sm(sizeof(typename Block::Memory)) > 0;
      if (taken) call(Block{});
    }
  });
  return taken;
}

}  // namespace

bool queue_fused_forward(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work, CUstream_st* stream) {
  return queue_pass<true>(shape, offsets, work, stream);
}

bool queue_fused_decisions(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work, CUstream_st* stream) {
  return queue_pass<false>(shape, offsets, work, stream);
}

bool queue_fused_backward(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work, CUstream_st* stream) {
  const MlpBackwardShape mlp = backward_of(shape, offsets, work);
  return with_blocks_backward(shape, work, mlp, [&](auto block) {
    using Block = decltype(block);
    if (!work.packed_resident) queue_pack_weights(shape, offsets, work, stream);
    TANDEM_LAUNCH_WITH(sizeof(typename Block::Memory), "dqn backward", backward_rows<Block>,
                       dim3(ceil_div(int64_t{shape.local_shards} * shape.shard_batch, Block::kRows), 1, shape.agents),
                       dim3(Block::kThreads), stream, shape, work, mlp);
  });
}

bool uses_packed_weights(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work) {
  if (!is_16bit(shape.blocks.precision)) return false;
  const auto nothing = [](auto) {};
  return with_blocks<true>(shape, work, pass_of<true>(shape, offsets, work), nothing) ||
         with_blocks<false>(shape, work, pass_of<false>(shape, offsets, work), nothing) ||
         with_blocks_backward(shape, work, backward_of(shape, offsets, work), nothing);
}

}  // namespace tandem::cuda
