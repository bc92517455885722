// kernels/gpu/fused_mlp_layers.h -- the layers of a fused MLP, forward and backward, as device functions of one block:
// linear, layer norm, ReLU and dropout, repeated; the last layer is linear alone. What backward needs is kept where
// layer by layer puts it (layer_norm.h).
//
// A kernel loads its rows with store_operand(), calls mlp_forward() or mlp_backward(), and reads the last layer's
// output from shared memory.
#pragma once

#include "kernels/gpu/fused_mlp.h"
#include "kernels/gpu/layer_norm.h"

namespace tandem::cuda {

inline constexpr int kMaxMlpLayers = 4;

// Sizes and weights of an MLP; offsets are into a net's flat weights, or into its packed fragments.
struct MlpShape {
  struct Layer {
    int64_t weight, packed, bias;
    int in, out;     // features
    LayerNorm norm;  // of all but the last
  };
  int count = 0;
  Layer layers[kMaxMlpLayers] = {};

  template <class Block>
  bool fits() const {
    return std::all_of(layers, layers + count, [](const Layer& l) { return Block::fits(l.in, l.out); });
  }
};

// From the gradient of the last layer's output to that of the first layer's pre-activations, last layer first. Packed
// weights only. A GEMM of backward has the layer's outputs as its inputs.
struct MlpBackwardShape {
  struct Layer {
    int64_t packed;  // the transposed weights
    int in;          // features of the gradient that comes in; norm.width go out
    LayerNormBackward norm;
  };
  int count = 0;
  Layer layers[kMaxMlpLayers - 1] = {};

  template <class Block>
  bool fits() const {
    return std::all_of(layers, layers + count, [](const Layer& l) { return Block::fits(l.in, l.norm.width); });
  }
};

#if defined(TANDEM_FUSED_MLP)
// Layer norm, ReLU and dropout of the GEMM's output, as layer_norm_row(), but of all rows of a warp together, so that
// their latencies overlap. The result becomes the operand of the next layer. bits_of_row(site, i, shard, row, width):
// dropout bits of the warp's i-th row; dropout: the rate.
template <class Block, class Bits>
__device__ void layer_norm_rows(typename Block::Memory& memory, const WarpRows<Block>& rows, const LayerNorm& layer,
                                const float* net, float epsilon, double dropout, const MaskShape& mask, bool keep,
                                Bits bits_of_row) {
  constexpr int kRowsPerWarp = Block::kRowsPerWarp;
  const int lane = threadIdx.x % 32, width = layer.width;
  const float *scale_src = net + layer.scale + 4 * lane, *shift_src = net + layer.shift + 4 * lane;
  float4 scale = load4(scale_src), shift = load4(shift_src);
  float *normed_dst[kRowsPerWarp] = {}, *out_dst[kRowsPerWarp] = {};  // null: not kept
  uint32_t bits[kRowsPerWarp] = {};
  const bool drops = keep && dropout > 0;
  if (keep) {
#pragma unroll
    for (int i = 0; i < kRowsPerWarp; ++i) {
      const int shard = rows.shard(i), row = rows.row(i);
      if (shard < 0) continue;
      if (drops) bits[i] = bits_of_row(layer.site, i, shard, row, width);
      normed_dst[i] = layer.preact + (int64_t{shard} * layer.passes * layer.rows + row) * width + 4 * lane;
      out_dst[i] = layer.out + (int64_t{shard} * layer.rows + row) * width + 4 * lane;
    }
  }
  const Moments lane_moments =
      moments_of_rows<kRowsPerWarp>(width, epsilon, [&](int i) { return memory.output(width, rows.row_in_block(i)); });
  if (keep && rows.lane_shard >= 0)
    layer.inv_std[int64_t{rows.lane_shard} * layer.rows + rows.lane_row] = lane_moments.inv_std;
  float mean[kRowsPerWarp], inv_std[kRowsPerWarp];
#pragma unroll
  for (int i = 0; i < kRowsPerWarp; ++i) {
    mean[i] = __shfl_sync(kFullMask, lane_moments.mean, i);
    inv_std[i] = __shfl_sync(kFullMask, lane_moments.inv_std, i);
  }
#pragma unroll 1
  for (int first = 0; first < width; first += Block::kNormColumns) {
    const int column = first + 4 * lane;
    const bool last = first + Block::kNormColumns == width;
    float4 x[kRowsPerWarp];
#pragma unroll
    for (int i = 0; i < kRowsPerWarp; ++i) x[i] = load4(memory.output(width, rows.row_in_block(i)) + column);
    const float4 current_scale = scale, current_shift = shift;
    if (!last) {
      scale = load4(scale_src + first + Block::kNormColumns);
      shift = load4(shift_src + first + Block::kNormColumns);
    } else {
      __syncthreads();  // all threads have read the output: the operand of the last columns may overlap it
    }
    float4 y[kRowsPerWarp];
#pragma unroll
    for (int i = 0; i < kRowsPerWarp; ++i) {
      x[i] = normalize(x[i], mean[i], inv_std[i]);
      y[i] = scale_shift_relu(x[i], current_scale, current_shift);
    }
    if (keep) {
      if (drops) {
#pragma unroll
        for (int i = 0; i < kRowsPerWarp; ++i)
          y[i] = apply_dropout(y[i], bits[i], first / Block::kNormColumns, mask.kept_value);
      }
#pragma unroll
      for (int i = 0; i < kRowsPerWarp; ++i) {
        if (!out_dst[i]) continue;
        *reinterpret_cast<float4*>(normed_dst[i] + first) = x[i];
        *reinterpret_cast<float4*>(out_dst[i] + first) = y[i];
      }
    }
#pragma unroll
    for (int i = 0; i < kRowsPerWarp; ++i) memory.store_operand(width, rows.row_in_block(i), column, y[i]);
  }
}

// Forward through all layers. Before: the rows' input is stored as operand. After: the last layer's output is in shared
// memory, for all threads to read. packed: the net's fragments, where elements have 16 bits. keep: what backward needs
// goes to global memory.
template <class Block, class Bits>
__device__ void mlp_forward(typename Block::Memory& memory, const WarpRows<Block>& rows, const MlpShape& mlp,
                            const float* net, const PackedFragment* packed, float epsilon, double dropout,
                            const MaskShape& mask, bool keep, Bits bits_of_row) {
#pragma unroll 1
  for (int l = 0;; ++l) {
    const MlpShape::Layer& layer = mlp.layers[l];
    proxy_fence();    // this thread's part of the operand is visible to wgmma
    __syncthreads();  // every thread's is
    const auto weight = [&] {
      if constexpr (Block::k32Bit)
        return net + layer.weight;
      else
        return packed + layer.packed;
    };
    rows_gemm<Block>(memory, weight(), layer.in, layer.out, [&](int column) {
      return [dst = memory.output(layer.out, 0) + column, stride = layer.out + Block::kPad,
              bias = net[layer.bias + column]](int row, float sum) { dst[row * stride] = sum + bias; };
    });
    __syncthreads();  // the output of all warps is stored
    if (l + 1 == mlp.count) break;
    layer_norm_rows<Block>(memory, rows, layer.norm, net, epsilon, dropout, mask, keep, bits_of_row);
  }
}

// Backward, one row to a warp. Before: the gradient of the last layer's output is stored as operand. Every layer's
// norm_out_grad and preact_grad go to global memory.
template <class Block>
__device__ void mlp_backward(typename Block::Memory& memory, const WarpRows<Block>& rows, const MlpBackwardShape& mlp,
                             const float* net, const PackedFragment* packed) {
  static_assert(Block::kRowsPerWarp == 1, "a row to a warp");
  constexpr int kFloat4s = Block::kMaxWidth / 128;
  const int lane = threadIdx.x % 32, block_row = rows.row_in_block(0), shard = rows.shard(0), row = rows.row(0);
#pragma unroll 1
  for (int l = 0; l < mlp.count; ++l) {
    const MlpBackwardShape::Layer& layer = mlp.layers[l];
    const int width = layer.norm.width;
    const bool more_layers = l + 1 < mlp.count;
    proxy_fence();    // this thread's part of the operand is visible to wgmma
    __syncthreads();  // every thread's is
    rows_gemm<Block>(memory, packed + layer.packed, layer.in, width, [&](int column) {
      return [dst = memory.output(width, 0) + column, stride = width + Block::kPad](int row, float sum) {
        dst[row * stride] = sum;
      };
    });
    __syncthreads();  // the output of all warps is stored
    float4 out_grad[kFloat4s];
    load_row(memory.output(width, block_row), width, out_grad);
    if (more_layers) __syncthreads();  // all threads have read the output: the next operand may overlap it
    const auto put = [&](int column, float4 preact_grad) {
      if (more_layers) memory.store_operand(width, block_row, column, preact_grad);
    };
    if (shard < 0)
      for (int column = lane * 4; column < width; column += 128) put(column, {0, 0, 0, 0});
    else
      layer_norm_row_backward(layer.norm, net, shard, row, out_grad, put);
  }
}
#endif

}  // namespace tandem::cuda
