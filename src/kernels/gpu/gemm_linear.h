// kernels/gpu/gemm_linear.h -- a block's part of the three GEMMs of a linear layer: forward, gradient of its input,
// gradient of its weights summed over shards.
//
// These are device functions, called by all threads of a block: the kernel around them says which matrices a block
// works on (one agent of several, the net or its target network), and passes where rows lie.
#pragma once

#include "kernels/gpu/gemm_shape.h"
#include "kernels/gpu/tree_sum.h"

namespace tandem::cuda {

// out [m, n] = in [m, k] * weight^T + bias, then ReLU if `relu`; weight is [n, k]. The block's output tiles begin at M
// tile `first_tile` (of RowTiles) and at column `first_column`. in(tile) and out(tile) are the addresses of an M tile's
// first row.
template <class BlockShape, class In, class Out>
__device__ void linear_block(typename BlockShape::Memory& memory, const GemmShape& shape, const RowTiles& tiles,
                             int first_tile, int first_column, const float* weight, const float* bias, bool relu, In in,
                             Out out) {
  gemm_block<BlockShape, Layout::kKInner, Layout::kKInner>(
      memory,
      [&](int t) {
        const int tile = first_tile + t;
        return Operand<Layout::kKInner>{in(tile), shape.k, tiles.rows(tile), shape.k};
      },
      Operand<Layout::kKInner>{weight + int64_t{first_column} * shape.k, shape.k, shape.n - first_column, shape.k},
      interleaved_split_k(),
      [&](int t) {
        const int tile = first_tile + t;
        const OutputTile<BlockShape> output{out(tile) + first_column, shape.n, tiles.rows(tile),
                                            shape.n - first_column};
        return [output, bias = bias + first_column, relu](int row, int column, float4 y) {
          if (!output.has(row, column)) return;
          y = add4(y, *reinterpret_cast<const float4*>(bias + column));
          if (relu) y = relu4(y);
          output.store(row, column, y);
        };
      });
}

// out [m, n] = in [m, k] * weight, the gradient of a layer's input from that of its output. weight is [k, n]: here
// shape.k is the layer's number of outputs, shape.n that of its inputs.
template <class BlockShape, class In, class Out>
__device__ void linear_backward_block(typename BlockShape::Memory& memory, const GemmShape& shape,
                                      const RowTiles& tiles, int first_tile, int first_column, const float* weight,
                                      In in, Out out) {
  gemm_block<BlockShape, Layout::kKInner, Layout::kKOuter>(
      memory,
      [&](int t) {
        const int tile = first_tile + t;
        return Operand<Layout::kKInner>{in(tile), shape.k, tiles.rows(tile), shape.k};
      },
      Operand<Layout::kKOuter>{weight + first_column, shape.n, shape.n - first_column, shape.k}, interleaved_split_k(),
      [&](int t) {
        const OutputTile<BlockShape> output{out(first_tile + t) + first_column, shape.n, tiles.rows(first_tile + t),
                                            shape.n - first_column};
        return [output](int row, int column, float4 y) {
          if (output.has(row, column)) output.store(row, column, y);
        };
      });
}

// The gradient of a layer's weights: gradient[o][i] = sum over shards, along their tree (tree_sum.h), of the sum over
// the shard's rows of output_grad[row][o] * input[row][i]. As a GEMM: M is `out`, N is `in`, K are rows.
struct WeightGradient {
  const float *output_grad, *input;  // [shard][rows][out]: gradient of the layer's output; [shard][rows][in]
  int64_t input_shard_stride;        // floats from one shard's input to the next; output_grad has no gaps
  int64_t offset;                    // of this matrix's gradient among those of all matrices
  int out, in;                       // outputs and inputs of the layer
};

// Eight shards from `first_shard` on, `rows_per_shard` rows each, whose tree is pairs, of pairs, of pairs: they are the
// eight splits of K. `block`: which block of output tiles, row by row of blocks.
inline constexpr int kPairedShards = kSplitK;
template <class BlockShape>
__device__ void weight_gradient_pairs(typename BlockShape::Memory& memory, const WeightGradient& layer,
                                      int64_t first_shard, int rows_per_shard, int block, float* gradient) {
  constexpr int kColumns = BlockShape::kTilesN * kTileColumns;
  const int blocks_n = (layer.in + kColumns - 1) / kColumns;
  const int first_out = block / blocks_n * BlockShape::kTilesM * kTileRows, first_in = block % blocks_n * kColumns;
  const int64_t output_grad_shard_stride = int64_t{rows_per_shard} * layer.out;
  gemm_block<BlockShape, Layout::kKOuter, Layout::kKOuter>(
      memory,
      [&](int t) {
        const int out = first_out + t * kTileRows;
        return Operand<Layout::kKOuter>{layer.output_grad + first_shard * output_grad_shard_stride + out, layer.out,
                                        layer.out - out, rows_per_shard};
      },
      Operand<Layout::kKOuter>{layer.input + first_shard * layer.input_shard_stride + first_in, layer.in,
                               layer.in - first_in, rows_per_shard},
      SplitK{output_grad_shard_stride, layer.input_shard_stride, 0, kSliceK},
      [&](int t) {
        const int out = first_out + t * kTileRows;
        const OutputTile<BlockShape> output{gradient + layer.offset + int64_t{out} * layer.in + first_in, layer.in,
                                            layer.out - out, layer.in - first_in};
        return [output](int row, int column, float4 sum) {
          if (output.has(row, column)) output.store(row, column, sum);
        };
      });
}

// The same for any tree, by blocks of one tile: warp w computes the tile's GEMM of shard w; shards beyond the block's
// warps come in further rounds. merges[s]: TreeStack's, after shard s.
template <class BlockShape, int kMaxPending>
__device__ void weight_gradient_tree(typename BlockShape::Memory& memory, const WeightGradient& layer,
                                     int64_t first_shard, int shards, int rows_per_shard, const int32_t* merges,
                                     int block, float* gradient) {
  const int blocks_n = (layer.in + kTileColumns - 1) / kTileColumns, warp = threadIdx.x / 32;
  const int first_out = block / blocks_n * kTileRows, first_in = block % blocks_n * kTileColumns;
  const int row = static_cast<int>(threadIdx.x) * 4 / kTileColumns, column = threadIdx.x * 4 % kTileColumns;
  TreeStack<4, kMaxPending> stack;
  for (int first_of_round = 0; first_of_round < shards; first_of_round += BlockShape::kWarps) {
    const int shards_of_round =
        shards - first_of_round > BlockShape::kWarps ? BlockShape::kWarps : shards - first_of_round;
    const int64_t shard = first_shard + first_of_round + warp;
    if (first_of_round > 0)
      __syncthreads();  // all threads have read the tiles of the round before, which are overwritten now
    if (warp < shards_of_round) {
      WarpTile<Layout::kKOuter, Layout::kKOuter, BlockShape::kPrecision> tile;
      tile.multiply(
          {layer.output_grad + shard * rows_per_shard * layer.out + first_out, layer.out, layer.out - first_out,
           rows_per_shard},
          {layer.input + shard * layer.input_shard_stride + first_in, layer.in, layer.in - first_in, rows_per_shard},
          SplitK{0, 0, 0, kSliceK}, 0, 1, [&](int) { tile.store(memory.partials + warp * kTileElements); });
    }
    __syncthreads();  // the tiles of this round are in shared memory; each thread adds up its own four elements
    for (int w = 0; w < shards_of_round; ++w) {
      const float4 sum = *reinterpret_cast<const float4*>(memory.partials + w * kTileElements + swizzle(row, column));
      stack.push({sum.x, sum.y, sum.z, sum.w}, merges[first_of_round + w]);
    }
  }
  if (first_out + row >= layer.out || first_in + column >= layer.in) return;
  const float(&sum)[4] = stack.top();
  *reinterpret_cast<float4*>(gradient + layer.offset + int64_t{first_out + row} * layer.in + first_in + column) = {
      sum[0], sum[1], sum[2], sum[3]};
}

}  // namespace tandem::cuda
