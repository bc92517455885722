// rl/dqn/gpu/fused_mlp.cu -- the dueling net on a GPU, all layers of some rows by one block (cuda_dqn_rows.h): what
// many rows take instead of layer by layer; the way back too, where weights are kept in halves.
#include <algorithm>

#include "rl/dqn/gpu/dqn_kernels.h"
#include "rl/dqn/gpu/dueling_head.h"
#include "rl/dqn/gpu/fused_mlp.h"
#include "rl/dqn/gpu/layer_norm.h"

namespace tandem::cuda {
namespace {

// The norm of a layer's sums, as norm_row(), but of a warp's rows together, so that nothing waits for one row alone;
// four columns of each to a lane at a time. Halves of what comes out take the place of the sums.
template <class Block>
__device__ void norm_rows(const DqnShape& shape, const DqnWork& work, typename Block::Memory& memory,
                          const RowsOfWarp<Block>& rows, const Norm& layer, const float* net, RandomKey key,
                          uint32_t shard_there, const MaskShape& mask, bool learned) {
  constexpr int kEach = Block::kEach;
  const int lane = threadIdx.x % 32, width = layer.width;
  const auto fours = [](const float* at) { return *reinterpret_cast<const float4*>(at); };
  const float *scale_at = net + layer.scale + 4 * lane, *shift_at = net + layer.shift + 4 * lane;
  float4 scale = fours(scale_at), shift = fours(shift_at);
  float *normed_to[kEach] = {}, *out_to[kEach] = {};  // or nothing
  uint32_t drawn[kEach] = {};
  const bool drops = learned && shape.dropout > 0;
  if (learned) {
    key.site = layer.site;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int set = rows.set(i), row = rows.row(i);
      key.shard = __shfl_sync(kWholeWarp, shard_there, i);
      if (set < 0) continue;
      if (drops) drawn[i] = work.left ? *left_at(shape, work, layer.site, set, row) : draw_left(key, row, width, mask);
      normed_to[i] = layer.sums + (int64_t{set} * layer.kinds * layer.rows + row) * width + 4 * lane;
      out_to[i] = layer.learned + (int64_t{set} * layer.rows + row) * width + 4 * lane;
    }
  }
  const Moments there =
      moments_there<kEach>(width, shape.epsilon_norm, [&](int i) { return memory.sums(width, rows.of(i)); });
  if (learned && rows.set_there >= 0)
    layer.inverse[int64_t{rows.set_there} * layer.rows + rows.row_there] = there.inverse;
  float mean[kEach], inverse[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    mean[i] = __shfl_sync(kWholeWarp, there.mean, i);
    inverse[i] = __shfl_sync(kWholeWarp, there.inverse, i);
  }
#pragma unroll 1
  for (int first = 0; first < width; first += Block::kAtOnce) {
    const int column = first + 4 * lane;
    const bool last = first + Block::kAtOnce == width;
    float4 x[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) x[i] = fours(memory.sums(width, rows.of(i)) + column);
    const float4 by = scale, add = shift;
    if (!last) {
      scale = fours(scale_at + first + Block::kAtOnce);
      shift = fours(shift_at + first + Block::kAtOnce);
    } else {
      __syncthreads();  // halves of the last columns may stand where sums were
    }
    float4 y[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      x[i] = normed_of(x[i], mean[i], inverse[i]);
      y[i] = out_of(x[i], by, add);
    }
    if (learned) {
      if (drops) {
#pragma unroll
        for (int i = 0; i < kEach; ++i) y[i] = left_of(y[i], drawn[i], first / Block::kAtOnce, mask.kept_value);
      }
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (!out_to[i]) continue;
        *reinterpret_cast<float4*>(normed_to[i] + first) = x[i];
        *reinterpret_cast<float4*>(out_to[i] + first) = y[i];
      }
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) memory.put(width, rows.of(i), column, y[i]);
  }
}

// A pass of `rows` rows of every set and kind. What is kept of it goes where single layers put it.
struct Pass {
  struct Layer {
    int64_t weight, halves, bias;
    int depth, width;
    Norm norm;  // of all but the last
  };
  const float* in;
  int in_kinds, kinds, rows;
  int64_t to_target;  // how far it is from a net's halves to its target's
  Layer layers[3];
};

// Learning, what comes out is kept for the loss; acting, it is decided at once.
template <class Block, bool kLearning>
__global__ void __launch_bounds__(Block::kThreads, 1)
    forward_rows(DqnShape shape, DqnPlaces places, DqnWork work, Pass pass) {
#if defined(TANDEM_FUSED_MLP)
  TANDEM_SHARED(typename Block::Memory, memory);
  constexpr int kEach = Block::kEach;
  const int kind = blockIdx.y, index = blockIdx.z, lane = threadIdx.x % 32;
  const DqnJob& job = work.jobs[index];
  const float* const net = kind == 2 ? job.target : job.net;
  const bool learned = kLearning && kind == 0;
  const RowsOfWarp<Block> rows(shape, index, pass.rows);
  const uint32_t shard_there = rows.set_there >= 0 ? work.worlds[rows.set_there].shard : 0;
  const MaskShape mask = dropout_shape(shape.dropout);
  int chance_there = -1;  // what lane i's row does, if it is not to be the best
  int64_t leaf_there = 0;
  {
    const int in_kind = kind < pass.in_kinds ? kind : pass.in_kinds - 1;
    const int64_t from_there =
        rows.set_there < 0
            ? -1
            : ((int64_t{rows.set_there} * pass.in_kinds + in_kind) * pass.rows + rows.row_there) * shape.state;
    int64_t from[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) from[i] = __shfl_sync(kWholeWarp, from_there, i);
#pragma unroll 1
    for (int column = lane * 4; column < shape.state; column += 128) {
      float4 x[kEach];  // fetched together
#pragma unroll
      for (int i = 0; i < kEach; ++i)
        x[i] = from[i] < 0 ? float4{0, 0, 0, 0} : *reinterpret_cast<const float4*>(pass.in + from[i] + column);
      if constexpr (!kLearning)
        if (column == lane * 4 && rows.set_there >= 0) {  // while these are on their way
          leaf_there = next_leaf(shape, work.shards[rows.set_there], rows.row_there);
          chance_there = chance_of(shape, work, rows.set_there, rows.row_there);
        }
#pragma unroll
      for (int i = 0; i < kEach; ++i) memory.put(shape.state, rows.of(i), column, x[i]);
    }
    if constexpr (!kLearning) {
#pragma unroll 1
      for (int i = 0; i < kEach; ++i) {
        const int set = rows.set(i), row = rows.row(i);
        const int64_t leaf = __shfl_sync(kWholeWarp, leaf_there, i);
        if (set >= 0) remember_row(shape, work, set, row, leaf);
      }
    }
  }
#pragma unroll 1
  for (int l = 0;; ++l) {
    const Pass::Layer& layer = pass.layers[l];
    show_to_products();
    __syncthreads();
    const auto weight = [&] {
      if constexpr (Block::kByWords)
        return net + layer.weight;
      else
        return halves_of(shape, work, index) + (kind == 2 ? pass.to_target : 0) + layer.halves;
    };
    rows_product<Block>(memory, weight(), layer.depth, layer.width, [&](int column) {
      return [at = memory.sums(layer.width, 0) + column, stride = layer.width + Block::kPad,
              bias = net[layer.bias + column]](int row, float sum) { at[row * stride] = sum + bias; };
    });
    __syncthreads();
    if (l == 2) break;
    norm_rows<Block>(shape, work, memory, rows, layer.norm, net, work.order->key, shard_there, mask, learned);
  }
  const int features = pass.layers[2].width;
  if constexpr (kLearning) {
    float* to[kEach];  // or nothing
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int set = rows.set(i), row = rows.row(i);
      to[i] = set < 0 ? nullptr : work.both + ((int64_t{set} * pass.kinds + kind) * pass.rows + row) * features;
    }
#pragma unroll 1
    for (int column = lane * 4; column < features; column += 128)
#pragma unroll
      for (int i = 0; i < kEach; ++i)
        if (to[i])
          *reinterpret_cast<float4*>(to[i] + column) =
              above_zero(*reinterpret_cast<const float4*>(memory.sums(features, rows.of(i)) + column));
  } else {
#pragma unroll 1
    for (int i = 0; i < kEach; ++i) {
      const int set = rows.set(i), row = rows.row(i), chance = __shfl_sync(kWholeWarp, chance_there, i);
      if (set < 0) continue;
      float* const sums = memory.sums(features, rows.of(i));
      for (int column = lane * 4; column < features; column += 128)
        *reinterpret_cast<float4*>(sums + column) = above_zero(*reinterpret_cast<const float4*>(sums + column));
      __syncwarp();
      decide_row(shape, places, work, net, set, row, chance, sums);
    }
  }
#endif
}

template <bool kLearning>
Pass pass_of(const DqnShape& shape, const DqnPlaces& p, const DqnWork& w) {
  const int kinds = kLearning ? 3 : 1, rows = kLearning ? shape.piece : shape.environments;
  const DqnHalves kept(shape);
  Pass pass{.in = kLearning ? w.states : w.observed,
            .in_kinds = kLearning ? 2 : 1,
            .kinds = kinds,
            .rows = rows,
            .to_target = kept.of_net,
            .layers = {}};
  pass.layers[0] = {
      p.w1,       kept.w1,
      p.b1,       shape.state,
      shape.wide, {w.sums1, w.out1, w.inverse1, p.scale1, p.shift1, kinds, rows, shape.wide, kLearning, kDropout}};
  pass.layers[1] = {
      p.w2,
      kept.w2,
      p.b2,
      shape.wide,
      shape.narrow,
      {w.sums2, w.out2, w.inverse2, p.scale2, p.shift2, kinds, rows, shape.narrow, kLearning, kDropout + 1}};
  pass.layers[2] = {p.heads, kept.heads, p.heads_bias, shape.narrow, 2 * shape.head, {}};
  return pass;
}

// Calls with the blocks that a pass takes, if it does.
template <bool kLearning, class Call>
bool with_blocks(const DqnShape& shape, const DqnWork& work, const Pass& pass, Call call) {
  // Measured; a decision of its own would be one more launch. With weights in halves one agent's suffice.
  const int least = is_of_halves(shape.precision) ? kLearning ? 768 : 256 : kLearning ? 1024 : 768;
  return with_rows(
      shape, int64_t{pass.kinds} * shape.jobs, shape.count * pass.rows, least,
      [&](auto block) {
        return (block.kByWords || work.halves) &&
               std::all_of(pass.layers, pass.layers + 3,
                           [&](const Pass::Layer& layer) { return block.holds(layer.depth, layer.width); });
      },
      [](auto block) { return forward_rows<decltype(block), kLearning>; }, call);
}

template <bool kLearning>
bool queue_pass(const DqnShape& shape, const DqnPlaces& places, const DqnWork& work, CUstream_st* stream) {
  const Pass pass = pass_of<kLearning>(shape, places, work);
  return with_blocks<kLearning>(shape, work, pass, [&](auto block) {
    using Block = decltype(block);
    if (!Block::kByWords && !work.halves_kept) queue_halves(shape, places, work, stream);
    TANDEM_LAUNCH_WITH(sizeof(typename Block::Memory), "dqn forward", (forward_rows<Block, kLearning>),
                       dim3(cuts(int64_t{shape.count} * pass.rows, Block::kRows), pass.kinds, shape.jobs),
                       dim3(Block::kThreads), stream, shape, places, work, pass);
  });
}

// ---- the way back ----

// From the heads' gradient to that of the first layer's sums.
struct Backward {
  struct Layer {
    int64_t halves;
    int depth;
    NormBack norm;
  };
  Layer layers[2];
};

template <class Block>
__global__ void __launch_bounds__(Block::kThreads, 1) back_rows(DqnShape shape, DqnWork work, Backward way) {
#if defined(TANDEM_FUSED_MLP)
  TANDEM_SHARED(typename Block::Memory, memory);
  constexpr int kFours = Block::kMostWidth / 128;
  const int index = blockIdx.z, lane = threadIdx.x % 32;
  const float* const net = work.jobs[index].net;
  const RowsOfWarp<Block> rows(shape, index, shape.piece);
  static_assert(Block::kEach == 1, "a row to a warp");
  const int mine = rows.of(0), set = rows.set(0), row = rows.row(0), depth = way.layers[0].depth;
  const float* const from = work.both_grad + (int64_t{set} * shape.piece + row) * depth;
  for (int column = lane * 4; column < depth; column += 128)
    memory.put(depth, mine, column, set < 0 ? float4{0, 0, 0, 0} : *reinterpret_cast<const float4*>(from + column));
#pragma unroll 1
  for (int l = 0; l < 2; ++l) {
    const Backward::Layer& layer = way.layers[l];
    const int width = layer.norm.width;
    show_to_products();
    __syncthreads();
    rows_product<Block>(memory, halves_of(shape, work, index) + layer.halves, layer.depth, width, [&](int column) {
      return [at = memory.sums(width, 0) + column, stride = width + Block::kPad](int row, float sum) {
        at[row * stride] = sum;
      };
    });
    __syncthreads();
    float4 g[kFours];
    fetch_row(memory.sums(width, mine), width, g);
    if (l == 0) __syncthreads();  // halves of the last columns may stand where sums were
    const auto put = [&](int column, float4 dx) {
      if (l == 0) memory.put(width, mine, column, dx);
    };
    if (set < 0)
      for (int column = lane * 4; column < width; column += 128) put(column, {0, 0, 0, 0});
    else
      norm_row_back(shape, layer.norm, net, set, row, g, put);
  }
#endif
}

// As with_blocks().
template <class Call>
bool with_blocks_back(const DqnShape& shape, const DqnWork& work, Call call) {
  constexpr int64_t kLeast = 256;  // measured
  const int64_t rows = int64_t{shape.count} * shape.piece;
  bool taken = false;
  with_precision(shape, [&](auto precision) {
    using Block = FewRows<precision.value>;
    if constexpr (!Block::kByWords) {
      const bool asked = shape.rows_of_block == Block::kRows,
                 suits = shape.rows_of_block == 0 && shape.tiles_of_block == 0 && shape.jobs * rows >= kLeast &&
                         shape.jobs * int64_t{cuts(rows, Block::kRows)} <= processors();
      taken = (asked || suits) && work.halves && Block::holds(2 * shape.head, shape.narrow) &&
              Block::holds(shape.narrow, shape.wide) && has_code(back_rows<Block>, !asked) &&
              blocks_with_shared_memory(sizeof(typename Block::Memory)) > 0;
      if (taken) call(Block{});
    }
  });
  return taken;
}

}  // namespace

bool queue_fused_forward(const DqnShape& shape, const DqnPlaces& places, const DqnWork& work, CUstream_st* stream) {
  return queue_pass<true>(shape, places, work, stream);
}

bool queue_fused_decisions(const DqnShape& shape, const DqnPlaces& places, const DqnWork& work, CUstream_st* stream) {
  return queue_pass<false>(shape, places, work, stream);
}

bool queue_fused_backward(const DqnShape& shape, const DqnPlaces& p, const DqnWork& w, CUstream_st* stream) {
  return with_blocks_back(shape, w, [&](auto block) {
    using Block = decltype(block);
    if (!w.halves_kept) queue_halves(shape, p, w, stream);
    const DqnHalves kept(shape);
    const Backward way{{{kept.back_heads, 2 * shape.head, second_norm_back(shape, p, w)},
                        {kept.back2, shape.narrow, first_norm_back(shape, p, w)}}};
    TANDEM_LAUNCH_WITH(sizeof(typename Block::Memory), "dqn back", back_rows<Block>,
                       dim3(cuts(int64_t{shape.count} * shape.piece, Block::kRows), 1, shape.jobs),
                       dim3(Block::kThreads), stream, shape, w, way);
  });
}

bool takes_halves(const DqnShape& shape, const DqnPlaces& places, const DqnWork& work) {
  if (!is_of_halves(shape.precision)) return false;
  const auto nothing = [](auto) {};
  return with_blocks<true>(shape, work, pass_of<true>(shape, places, work), nothing) ||
         with_blocks<false>(shape, work, pass_of<false>(shape, places, work), nothing) ||
         with_blocks_back(shape, work, nothing);
}

}  // namespace tandem::cuda
