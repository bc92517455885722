// kernels/gpu/fused_mlp_layers.h -- the layers of a fused MLP, forward and backward, as device functions of one block:
// linear, layer norm, ReLU and dropout, repeated; the last layer is linear alone. What backward needs is kept where
// layer by layer puts it (layer_norm.h).
//
// A kernel loads its rows with store_operand(), calls mlp_forward() or mlp_backward(), and reads the last layer's sums
// from shared memory.
#pragma once

#include "kernels/gpu/fused_mlp.h"
#include "kernels/gpu/layer_norm.h"

namespace tandem::cuda {

inline constexpr int kMostMlpLayers = 4;

// Sizes and weights of an MLP; offsets are into a net's flat weights, or into its packed fragments.
struct MlpShape {
  struct Layer {
    int64_t weight, packed, bias;
    int depth, width;
    LayerNorm norm;  // of all but the last
  };
  int count = 0;
  Layer layers[kMostMlpLayers] = {};

  template <class Block>
  bool fits() const {
    return std::all_of(layers, layers + count, [](const Layer& l) { return Block::fits(l.depth, l.width); });
  }
};

// From the gradient of the last layer's output to that of the first layer's sums, last layer first. Packed weights
// only.
struct MlpBackwardShape {
  struct Layer {
    int64_t packed;  // the transposed weights
    int depth;
    LayerNormBackward norm;
  };
  int count = 0;
  Layer layers[kMostMlpLayers - 1] = {};

  template <class Block>
  bool fits() const {
    return std::all_of(layers, layers + count, [](const Layer& l) { return Block::fits(l.depth, l.norm.width); });
  }
};

#if defined(TANDEM_FUSED_MLP)
// The norm of a layer's sums, as layer_norm_row(), but of all rows of a warp together, so that their latencies overlap.
// The output becomes the operand of the next layer. bits(site, i, shard, row, width): dropout bits of the warp's i-th
// row; dropout: the rate.
template <class Block, class Bits>
__device__ void layer_norm_rows(typename Block::Memory& memory, const WarpRows<Block>& rows, const LayerNorm& layer,
                                const float* net, float epsilon, double dropout, const MaskShape& mask, bool keep,
                                Bits bits_of_row) {
  constexpr int kRowsPerWarp = Block::kRowsPerWarp;
  const int lane = threadIdx.x % 32, width = layer.width;
  const float *scale_at = net + layer.scale + 4 * lane, *shift_at = net + layer.shift + 4 * lane;
  float4 scale = load4(scale_at), shift = load4(shift_at);
  float *normed_to[kRowsPerWarp] = {}, *out_to[kRowsPerWarp] = {};  // null: not kept
  uint32_t bits[kRowsPerWarp] = {};
  const bool drops = keep && dropout > 0;
  if (keep) {
#pragma unroll
    for (int i = 0; i < kRowsPerWarp; ++i) {
      const int shard = rows.shard(i), row = rows.row(i);
      if (shard < 0) continue;
      if (drops) bits[i] = bits_of_row(layer.site, i, shard, row, width);
      normed_to[i] = layer.sums + (int64_t{shard} * layer.passes * layer.rows + row) * width + 4 * lane;
      out_to[i] = layer.out + (int64_t{shard} * layer.rows + row) * width + 4 * lane;
    }
  }
  const Moments own =
      moments_of_rows<kRowsPerWarp>(width, epsilon, [&](int i) { return memory.sums(width, rows.in_block(i)); });
  if (keep && rows.lane_shard >= 0) layer.inv_std[int64_t{rows.lane_shard} * layer.rows + rows.lane_row] = own.inv_std;
  float mean[kRowsPerWarp], inv_std[kRowsPerWarp];
#pragma unroll
  for (int i = 0; i < kRowsPerWarp; ++i) {
    mean[i] = __shfl_sync(kFullMask, own.mean, i);
    inv_std[i] = __shfl_sync(kFullMask, own.inv_std, i);
  }
#pragma unroll 1
  for (int first = 0; first < width; first += Block::kNormColumns) {
    const int column = first + 4 * lane;
    const bool last = first + Block::kNormColumns == width;
    float4 x[kRowsPerWarp];
#pragma unroll
    for (int i = 0; i < kRowsPerWarp; ++i) x[i] = load4(memory.sums(width, rows.in_block(i)) + column);
    const float4 by = scale, add = shift;
    if (!last) {
      scale = load4(scale_at + first + Block::kNormColumns);
      shift = load4(shift_at + first + Block::kNormColumns);
    } else {
      __syncthreads();  // all sums are read: the operand of the last columns may overlap them
    }
    float4 y[kRowsPerWarp];
#pragma unroll
    for (int i = 0; i < kRowsPerWarp; ++i) {
      x[i] = normalize(x[i], mean[i], inv_std[i]);
      y[i] = scale_shift_relu(x[i], by, add);
    }
    if (keep) {
      if (drops) {
#pragma unroll
        for (int i = 0; i < kRowsPerWarp; ++i)
          y[i] = apply_dropout(y[i], bits[i], first / Block::kNormColumns, mask.kept_value);
      }
#pragma unroll
      for (int i = 0; i < kRowsPerWarp; ++i) {
        if (!out_to[i]) continue;
        *reinterpret_cast<float4*>(normed_to[i] + first) = x[i];
        *reinterpret_cast<float4*>(out_to[i] + first) = y[i];
      }
    }
#pragma unroll
    for (int i = 0; i < kRowsPerWarp; ++i) memory.store_operand(width, rows.in_block(i), column, y[i]);
  }
}

// All layers. The rows' input is stored as operand; the last layer's sums are in shared memory afterwards, for all
// threads to read. packed: the net's fragments, where elements have 16 bits. keep: what backward needs, in memory.
template <class Block, class Bits>
__device__ void mlp_forward(typename Block::Memory& memory, const WarpRows<Block>& rows, const MlpShape& mlp,
                            const float* net, const PackedFragment* packed, float epsilon, double dropout,
                            const MaskShape& mask, bool keep, Bits bits_of_row) {
#pragma unroll 1
  for (int l = 0;; ++l) {
    const MlpShape::Layer& layer = mlp.layers[l];
    proxy_fence();    // the operand is visible to wgmma
    __syncthreads();  // of every thread
    const auto weight = [&] {
      if constexpr (Block::k32Bit)
        return net + layer.weight;
      else
        return packed + layer.packed;
    };
    rows_gemm<Block>(memory, weight(), layer.depth, layer.width, [&](int column) {
      return [at = memory.sums(layer.width, 0) + column, stride = layer.width + Block::kPad,
              bias = net[layer.bias + column]](int row, float sum) { at[row * stride] = sum + bias; };
    });
    __syncthreads();  // the sums of all columns are stored
    if (l + 1 == mlp.count) break;
    layer_norm_rows<Block>(memory, rows, layer.norm, net, epsilon, dropout, mask, keep, bits_of_row);
  }
}

// One row to a warp. Its gradient is stored as operand; every layer's dz and dx go to memory.
template <class Block>
__device__ void mlp_backward(typename Block::Memory& memory, const WarpRows<Block>& rows, const MlpBackwardShape& mlp,
                             const float* net, const PackedFragment* packed) {
  static_assert(Block::kRowsPerWarp == 1, "a row to a warp");
  constexpr int kFloat4s = Block::kMostWidth / 128;
  const int lane = threadIdx.x % 32, mine = rows.in_block(0), shard = rows.shard(0), row = rows.row(0);
#pragma unroll 1
  for (int l = 0; l < mlp.count; ++l) {
    const MlpBackwardShape::Layer& layer = mlp.layers[l];
    const int width = layer.norm.width;
    const bool more = l + 1 < mlp.count;
    proxy_fence();
    __syncthreads();
    rows_gemm<Block>(memory, packed + layer.packed, layer.depth, width, [&](int column) {
      return [at = memory.sums(width, 0) + column, stride = width + Block::kPad](int row, float sum) {
        at[row * stride] = sum;
      };
    });
    __syncthreads();
    float4 g[kFloat4s];
    load_row(memory.sums(width, mine), width, g);
    if (more) __syncthreads();  // all sums are read: the operand of the last columns may overlap them
    const auto put = [&](int column, float4 dx) {
      if (more) memory.store_operand(width, mine, column, dx);
    };
    if (shard < 0)
      for (int column = lane * 4; column < width; column += 128) put(column, {0, 0, 0, 0});
    else
      layer_norm_row_backward(layer.norm, net, shard, row, g, put);
  }
}
#endif

}  // namespace tandem::cuda
