// rl/dqn/gpu/layers.cu -- the dueling net on a GPU, layer by layer: forward, for acting and learning, and the decision.
#include "kernels/gpu/gemm_linear.h"
#include "rl/dqn/gpu/dqn_kernels.h"
#include "rl/dqn/gpu/dueling_head.h"
#include "rl/dqn/gpu/net_norms.h"
#include "rl/dqn/gpu/packed_net.h"

namespace tandem::cuda {
namespace {

// ---- hidden layers ----

// One linear layer of `passes` passes over the rows of every agent shard, [agent shard][pass][rows]. Pass 2 goes
// through the target network; passes beyond `in_passes` read the input of the last one. Pass 0 reads `in_learned`
// [agent shard][rows], if that is not null.
struct LinearLayer {
  const float *in, *in_learned;
  float* out;
  int64_t weight, bias;
  int in_passes, passes;
  bool relu;
  GemmShape gemm;
  RowTiles tiles;
};

// Grid: (blocks of columns, blocks of rows, agents x passes).
template <class BlockShape>
__global__ void __launch_bounds__(BlockShape::kThreads, BlockShape::kBlocksPerSm)
    linear(DqnShape shape, DqnWork work, LinearLayer layer) {
  TANDEM_SHARED(typename BlockShape::Memory, memory);
  const RowTiles& tiles = layer.tiles;
  const int agent_index = layer.passes == 1 ? blockIdx.z : blockIdx.z / kPasses,
            pass = layer.passes == 1 ? 0 : blockIdx.z % kPasses;
  const int first_tile = blockIdx.y * BlockShape::kTilesM,
            first_column = blockIdx.x * BlockShape::kTilesN * kTileColumns;
  const GpuDqnAgent& agent = work.agents[agent_index];
  const float* const net = pass == 2 ? agent.target : agent.net;
  const int in_pass = pass < layer.in_passes ? pass : layer.in_passes - 1;
  // A tile's first row among those of all passes.
  const auto row_of = [&](int tile, int passes, int pass_index) {
    return ((int64_t{agent_index} * shape.local_shards + tiles.group(tile)) * passes + pass_index) * layer.gemm.m +
           tiles.row(tile);
  };
  linear_block<BlockShape>(
      memory, layer.gemm, tiles, first_tile, first_column, net + layer.weight, net + layer.bias, layer.relu,
      [&](int tile) {
        return layer.in_learned && pass == 0 ? layer.in_learned + row_of(tile, 1, 0) * layer.gemm.k
                                             : layer.in + row_of(tile, layer.in_passes, in_pass) * layer.gemm.k;
      },
      [&](int tile) { return layer.out + row_of(tile, layer.passes, pass) * layer.gemm.n; });
}

// Grid: (blocks of kNormWarps rows, passes, agent shards), a warp to a row.
template <int kFloat4s>
__global__ void __launch_bounds__(kNormWarps * 32) norm_relu(DqnShape shape, DqnWork work, LayerNorm layer) {
  const int row = blockIdx.x * kNormWarps + threadIdx.x / 32, pass = blockIdx.y, agent_shard = blockIdx.z;
  if (row >= layer.rows) return;
  const GpuDqnAgent& agent = work.agents[shape.agent_of(agent_shard)];
  const float* const net = pass == 2 ? agent.target : agent.net;
  const bool keep = layer.training && pass == 0;
  float* const preact = layer.preact + ((int64_t{agent_shard} * layer.passes + pass) * layer.rows + row) * layer.width;
  uint32_t bits = 0;
  if (keep && shape.dropout > 0) {
    RandomKey key = work.params->key;
    key.shard = work.environments[agent_shard].shard;
    key.site = layer.site;
    bits = work.dropout_bits ? *dropout_bits_at(shape, work, layer.site, agent_shard, row)
                             : draw_dropout_bits(key, row, layer.width, dropout_shape(shape.dropout));
  }
  float4 x[kFloat4s], scale[kFloat4s], shift[kFloat4s];
  load_row(preact, layer.width, x);
  load_row(net + layer.scale, layer.width, scale);
  load_row(net + layer.shift, layer.width, shift);
  const Moments moments = moments_of(x, layer.width, shape.epsilon_norm);
  layer_norm_row(shape.dropout, layer, bits, agent_shard, row, keep, x, moments.mean, moments.inv_std, scale, shift,
                 [&](int column, float4 y) {
                   if (!keep) *reinterpret_cast<float4*>(preact + column) = y;
                 });
}

// ---- decisions ----

constexpr int kDecideWarps = 4;  // rows of a block, a warp each

// The actions of all environments. Grid: (blocks of kDecideWarps environments, 1, agent shards).
__global__ void __launch_bounds__(kDecideWarps * 32) decide(DqnShape shape, DqnOffsets offsets, DqnWork work) {
  const int e = blockIdx.x * kDecideWarps + threadIdx.x / 32, agent_shard = blockIdx.z;
  if (e >= shape.environments) return;
  const int64_t row = int64_t{agent_shard} * shape.environments + e;
  store_observation(shape, work, agent_shard, e, next_leaf(shape, work.shards[agent_shard], e));
  decide_row(shape, offsets, work, work.agents[shape.agent_of(agent_shard)].net, agent_shard, e,
             explored_action(shape, work, agent_shard, e), work.head_features + row * 2 * shape.head);
}

void queue_layers(const DqnShape& shape, const DqnOffsets& o, const DqnWork& w, const float* in, int in_passes,
                  int passes, int rows, bool learning, CUstream_st* stream) {
  const auto linear_layer = [&](const float* input, const float* input_learned, float* output, int input_passes,
                                int64_t weight, int64_t bias, int in_width, int out_width, bool relu) {
    const GemmShape gemm{shape.local_shards, rows, out_width, in_width, passes * shape.agents};
    const RowTiles tiles(gemm.groups, gemm.m);
    const LinearLayer layer{input, input_learned, output, weight, bias, input_passes, passes, relu, gemm, tiles};
    with_block_shape(shape.blocks, gemm.tiles(), has_full_blocks(gemm), [&](auto chosen) {
      using BlockShape = decltype(chosen);
      TANDEM_LAUNCH_WITH(
          sizeof(typename BlockShape::Memory), "dqn linear", linear<BlockShape>,
          dim3(ceil_div(gemm.n, kTileColumns) / BlockShape::kTilesN, tiles.blocks(BlockShape::kTilesM), gemm.batch),
          dim3(BlockShape::kThreads), stream, shape, w, layer);
    });
  };
  const auto norm = [&](const LayerNorm& layer) {
    with_float4s(layer.width, [&](auto float4s) {
      TANDEM_LAUNCH("dqn norm", norm_relu<float4s.value>,
                    dim3(ceil_div(rows, kNormWarps), passes, shape.agent_shards()), dim3(kNormWarps * 32), stream,
                    shape, w, layer);
    });
  };
  linear_layer(in, nullptr, w.preact1, in_passes, o.w1, o.b1, shape.observation_size, shape.hidden1, false);
  norm(first_norm(shape, o, w, passes, rows, learning));
  linear_layer(w.preact1, learning ? w.out1 : nullptr, w.preact2, passes, o.w2, o.b2, shape.hidden1, shape.hidden2,
               false);
  norm(second_norm(shape, o, w, passes, rows, learning));
  linear_layer(w.preact2, learning ? w.out2 : nullptr, w.head_features, passes, o.heads, o.heads_bias, shape.hidden2,
               2 * shape.head, true);
}

}  // namespace

void queue_forward(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work, CUstream_st* stream) {
  if (!queue_fused_forward(shape, offsets, work, stream))
    queue_layers(shape, offsets, work, work.states, 2, kPasses, shape.shard_batch, true, stream);
}

void queue_decisions(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work, CUstream_st* stream) {
  if (queue_fused_decisions(shape, offsets, work, stream)) return;
  queue_layers(shape, offsets, work, work.observed, 1, 1, shape.environments, false, stream);
  TANDEM_LAUNCH("dqn decide", decide, dim3(ceil_div(shape.environments, kDecideWarps), 1, shape.agent_shards()),
                dim3(kDecideWarps * 32), stream, shape, offsets, work);
}

}  // namespace tandem::cuda
