// kernels/gpu/gemm_linear.h -- a block's part of the three GEMMs of a linear layer: forward, gradient of its input,
// gradient of its weights summed over shards.
//
// These are device functions: the kernel around them says which matrices a block works on (one agent of several, the
// net or its target), and passes where rows lie.
#pragma once

#include "kernels/gpu/gemm_shape.h"
#include "kernels/gpu/tree_sum.h"

namespace tandem::cuda {

// out = in * weight^T + bias, then ReLU where asked: tiles from `first_tile`, columns from `first_column` on. in(tile)
// and out(tile) are the addresses of a tile's first row.
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
        const OutputTile<BlockShape> target{out(tile) + first_column, shape.n, tiles.rows(tile),
                                            shape.n - first_column};
        return [target, bias = bias + first_column, relu](int row, int column, float4 y) {
          if (!target.has(row, column)) return;
          y = add4(y, *reinterpret_cast<const float4*>(bias + column));
          if (relu) y = relu4(y);
          target.store(row, column, y);
        };
      });
}

// out = in * weight: the gradient of a layer's input. shape.k is the layer's output width, shape.n its input width.
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
        const OutputTile<BlockShape> target{out(first_tile + t) + first_column, shape.n, tiles.rows(first_tile + t),
                                            shape.n - first_column};
        return [target](int row, int column, float4 y) {
          if (target.has(row, column)) target.store(row, column, y);
        };
      });
}

// gradient[o][i] = sum over shards, along their tree, of sum over rows of dy[row][o] * x[row][i].
struct WeightGradient {
  const float *dy, *x;  // [shard][rows][out], [shard][rows][in]
  int64_t x_shard;      // floats from one shard's x to the next; dy's follow each other
  int64_t to;           // offset of this gradient among those of all matrices
  int out, in;
};

// Eight shards from `first_shard` on, `rows` rows each, whose tree is pairs, of pairs, of pairs: they are the eight
// splits of K.
inline constexpr int kPairedShards = kSplitK;
template <class BlockShape>
__device__ void weight_gradient_pairs(typename BlockShape::Memory& memory, const WeightGradient& m, int64_t first_shard,
                                      int rows, int block, float* gradient) {
  constexpr int kColumns = BlockShape::kTilesN * kTileColumns;
  const int across = (m.in + kColumns - 1) / kColumns;
  const int first_out = block / across * BlockShape::kTilesM * kTileRows, first_in = block % across * kColumns;
  const int64_t dy_shard = int64_t{rows} * m.out;
  gemm_block<BlockShape, Layout::kKOuter, Layout::kKOuter>(
      memory,
      [&](int t) {
        const int out = first_out + t * kTileRows;
        return Operand<Layout::kKOuter>{m.dy + first_shard * dy_shard + out, m.out, m.out - out, rows};
      },
      Operand<Layout::kKOuter>{m.x + first_shard * m.x_shard + first_in, m.in, m.in - first_in, rows},
      SplitK{dy_shard, m.x_shard, 0, kSliceK},
      [&](int t) {
        const int out = first_out + t * kTileRows;
        const OutputTile<BlockShape> target{gradient + m.to + int64_t{out} * m.in + first_in, m.in, m.out - out,
                                            m.in - first_in};
        return [target](int row, int column, float4 sum) {
          if (target.has(row, column)) target.store(row, column, sum);
        };
      });
}

// Any tree, for blocks of one tile: warp w computes the product of shard w; shards beyond the block's warps come in
// further rounds. merges[s]: TreeStack's, after shard s.
template <class BlockShape, int kTreeDepth>
__device__ void weight_gradient_tree(typename BlockShape::Memory& memory, const WeightGradient& m, int64_t first_shard,
                                     int shards, int rows, const int32_t* merges, int block, float* gradient) {
  const int across = (m.in + kTileColumns - 1) / kTileColumns, warp = threadIdx.x / 32;
  const int first_out = block / across * kTileRows, first_in = block % across * kTileColumns;
  const int row = static_cast<int>(threadIdx.x) * 4 / kTileColumns, column = threadIdx.x * 4 % kTileColumns;
  TreeStack<4, kTreeDepth> stack;
  for (int base = 0; base < shards; base += BlockShape::kWarps) {
    const int here = shards - base > BlockShape::kWarps ? BlockShape::kWarps : shards - base;
    const int64_t shard = first_shard + base + warp;
    if (base > 0) __syncthreads();  // all have read the tiles of the round before
    if (warp < here) {
      WarpTile<Layout::kKOuter, Layout::kKOuter, BlockShape::kPrecision> tile;
      tile.multiply({m.dy + shard * rows * m.out + first_out, m.out, m.out - first_out, rows},
                    {m.x + shard * m.x_shard + first_in, m.in, m.in - first_in, rows}, SplitK{0, 0, 0, kSliceK}, 0, 1,
                    [&](int) { tile.store(memory.partials + warp * kTile); });
    }
    __syncthreads();
    for (int w = 0; w < here; ++w) {
      const float4 sum = *reinterpret_cast<const float4*>(memory.partials + w * kTile + swizzle(row, column));
      stack.push({sum.x, sum.y, sum.z, sum.w}, merges[base + w]);
    }
  }
  if (first_out + row >= m.out || first_in + column >= m.in) return;
  const float(&sum)[4] = stack.top();
  *reinterpret_cast<float4*>(gradient + m.to + int64_t{first_out + row} * m.in + first_in + column) = {sum[0], sum[1],
                                                                                                       sum[2], sum[3]};
}

}  // namespace tandem::cuda
