// rl/cuda_dqn_net.cu -- the dueling net on a card: forward, for acting and learning, and what is decided by it.
#include "kernels/random_fill_math.h"
#include "rl/cuda_dqn.h"
#include "rl/cuda_dqn_staged.h"
#include "rl/cuda_dqn_values.h"

namespace tandem::cuda {
namespace {

// ---- hidden layers ----

// ReLU. NaN stays, for the guard to see.
__device__ float4 above_zero(float4 x) {
  return {x.x <= 0 ? 0.0f : x.x, x.y <= 0 ? 0.0f : x.y, x.z <= 0 ? 0.0f : x.z, x.w <= 0 ? 0.0f : x.w};
}

// One linear layer of a pass: out = in * weight^T + bias, for `kinds` groups of rows of every set. Kind 2 goes through
// the target network; kinds beyond `in_kinds` read the last group. Rows of kind 0 come from `in_learned`, if it is
// there.
struct Linear {
  const float *in, *in_learned;
  float* out;
  int64_t weight, bias;
  int in_kinds, kinds, rows, in_width, out_width;
  bool relu;
  RowTiles tiles;
};

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks) linear(DqnShape shape, DqnWork work, Linear layer) {
  TANDEM_SHARED(typename Shape::Memory, memory);
  const RowTiles& tiles = layer.tiles;
  const int index = layer.kinds == 1 ? blockIdx.z : blockIdx.z / 3, kind = layer.kinds == 1 ? 0 : blockIdx.z % 3;
  const int first_tile = blockIdx.y * Shape::kDown, first_column = blockIdx.x * Shape::kAcross * kTileColumns;
  const DqnJob& job = work.jobs[index];
  const float* const net = kind == 2 ? job.target : job.net;
  const int in_kind = kind < layer.in_kinds ? kind : layer.in_kinds - 1;
  // Where a tile's first row is among those of all kinds.
  const auto row_of = [&](int tile, int kinds, int of_kind) {
    return ((int64_t{index} * shape.count + tiles.set(tile)) * kinds + of_kind) * layer.rows + tiles.row(tile);
  };
  tile_products<Shape, Lies::kDepthInside, Lies::kDepthInside>(
      memory,
      [&](int t) {
        const int tile = first_tile + t;
        const float* const from = layer.in_learned && kind == 0
                                      ? layer.in_learned + row_of(tile, 1, 0) * layer.in_width
                                      : layer.in + row_of(tile, layer.in_kinds, in_kind) * layer.in_width;
        return Factor<Lies::kDepthInside>{from, layer.in_width, tiles.rows(tile), layer.in_width};
      },
      Factor<Lies::kDepthInside>{net + layer.weight + int64_t{first_column} * layer.in_width, layer.in_width,
                                 layer.out_width - first_column, layer.in_width},
      slices_in_turn(),
      [&](int t) {
        const int tile = first_tile + t;
        const Target<Shape> target{layer.out + row_of(tile, layer.kinds, kind) * layer.out_width + first_column,
                                   layer.out_width, tiles.rows(tile), layer.out_width - first_column};
        const float* const bias = net + layer.bias + first_column;
        return [target, bias, relu = layer.relu](int row, int column, float4 y) {
          if (!target.has(row, column)) return;
          y = plus(y, *reinterpret_cast<const float4*>(bias + column));
          if (relu) y = above_zero(y);
          target.put(row, column, y);
        };
      });
}

// Layer norm, ReLU and dropout, in place of the sums: one warp a row, four numbers a lane at a time. Rows of kind 0,
// where `learning`, have dropout, and what comes out goes to `learned`: the way back needs the normed sums, and the
// inverse deviation.
struct Norm {
  float *sums, *learned, *inverse;
  int64_t scale, shift;
  int kinds, rows, width;
  bool learning;
  uint32_t site;
};

__global__ void __launch_bounds__(kNormWarps * 32) norm_relu(DqnShape shape, DqnWork work, Norm layer) {
  const int lane = threadIdx.x % 32, row = blockIdx.x * kNormWarps + threadIdx.x / 32;
  const int kind = blockIdx.y, set = blockIdx.z;
  if (row >= layer.rows) return;
  const DqnJob& job = work.jobs[shape.job_of(set)];
  const float* const net = kind == 2 ? job.target : job.net;
  const int64_t at = ((int64_t{set} * layer.kinds + kind) * layer.rows + row) * layer.width;
  const bool learned = layer.learning && kind == 0;
  float* const out = learned ? layer.learned + (int64_t{set} * layer.rows + row) * layer.width : layer.sums + at;
  float4 x[kMostFours];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kMostFours; ++i) {
    const int column = (i * 32 + lane) * 4;
    if (column >= layer.width) continue;
    x[i] = *reinterpret_cast<const float4*>(layer.sums + at + column);
    sum = sum + ((x[i].x + x[i].y) + (x[i].z + x[i].w));
  }
  const float mean = warp_sum(sum) / static_cast<float>(layer.width);
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kMostFours; ++i) {
    if ((i * 32 + lane) * 4 >= layer.width) continue;
    x[i] = {x[i].x - mean, x[i].y - mean, x[i].z - mean, x[i].w - mean};
    squares = squares + ((x[i].x * x[i].x + x[i].y * x[i].y) + (x[i].z * x[i].z + x[i].w * x[i].w));
  }
  const float variance = warp_sum(squares) / static_cast<float>(layer.width);
  const float inverse = 1.0f / sqrtf(variance + shape.epsilon_norm);
  if (learned && lane == 0) layer.inverse[int64_t{set} * layer.rows + row] = inverse;
  RandomKey key = work.order->key;
  key.shard = work.worlds[set].shard;
  key.site = layer.site;
  const MaskShape mask = dropout_shape(shape.dropout);
#pragma unroll
  for (int i = 0; i < kMostFours; ++i) {
    const int column = (i * 32 + lane) * 4;
    if (column >= layer.width) continue;
    const float4 scale = *reinterpret_cast<const float4*>(net + layer.scale + column);
    const float4 shift = *reinterpret_cast<const float4*>(net + layer.shift + column);
    const float4 normed = {x[i].x * inverse, x[i].y * inverse, x[i].z * inverse, x[i].w * inverse};
    float4 y = above_zero({normed.x * scale.x + shift.x, normed.y * scale.y + shift.y, normed.z * scale.z + shift.z,
                           normed.w * scale.w + shift.w});
    if (learned) {
      *reinterpret_cast<float4*>(layer.sums + at + column) = normed;
      if (shape.dropout > 0) {
        const PhiloxBlock drawn = random_block(key, static_cast<uint64_t>(int64_t{row} * layer.width + column) / 4);
        y = {y.x * mask_from_u32(drawn.word[0], mask), y.y * mask_from_u32(drawn.word[1], mask),
             y.z * mask_from_u32(drawn.word[2], mask), y.w * mask_from_u32(drawn.word[3], mask)};
      }
    }
    *reinterpret_cast<float4*>(out + column) = y;
  }
}

// ---- decisions ----

constexpr int kDecideWarps = 4;

__global__ void __launch_bounds__(kDecideWarps * 32) decide(DqnShape shape, DqnPlaces places, DqnWork work) {
  const int lane = threadIdx.x % 32, e = blockIdx.x * kDecideWarps + threadIdx.x / 32, set = blockIdx.z;
  if (e >= shape.environments) return;
  const int64_t row = int64_t{set} * shape.environments + e;
  const DqnShard& shard = work.shards[set];
  const int64_t leaf = e * shape.rows + shard.written[e] % shape.rows;  // what it decides upon goes to the ring
  for (int i = lane; i < shape.state; i += 32)
    shard.seen[leaf * shape.state + i] = work.observed[row * shape.state + i];
  float q[kMostCardActions];
  values_of(shape, places, work.jobs[shape.job_of(set)].net, work.both + row * 2 * shape.head, q);
  if (lane != 0) return;
  RandomKey key = work.order->key;
  key.shard = work.worlds[set].shard;
  key.site = kExplore;
  int action = best_of(shape, q);
  if (static_cast<double>(random_uniform(key, static_cast<uint64_t>(e))) < work.order->explore) {
    key.site = kMove;
    action = static_cast<int>(random_below(key, static_cast<uint64_t>(e), static_cast<uint32_t>(shape.actions)));
  }
  work.actions[row] = action;
}

}  // namespace

void queue_forward(const DqnShape& shape, const DqnPlaces& p, const DqnWork& w, const float* in, int in_kinds,
                   int kinds, int rows, bool learning, CUstream_st* stream) {
  const auto product = [&](const float* from, const float* learned, float* to, int from_kinds, int64_t weight,
                           int64_t bias, int in_width, int out_width, bool relu) {
    const RowTiles tiles(shape.count, rows);
    const Linear layer{from, learned, to, weight, bias, from_kinds, kinds, rows, in_width, out_width, relu, tiles};
    const int64_t across = cuts(out_width, kTileColumns);
    const bool whole = tiles.whole() && divides(2 * kTileColumns, out_width) && divides(kParts * kSlice, in_width);
    with_tiles(shape, across * kinds * shape.jobs * tiles.count, whole, [&](auto chosen) {
      using Shape = decltype(chosen);
      TANDEM_LAUNCH_WITH(sizeof(typename Shape::Memory), "dqn linear", linear<Shape>,
                         dim3(across / Shape::kAcross, tiles.blocks(Shape::kDown), kinds * shape.jobs),
                         dim3(Shape::kThreads), stream, shape, w, layer);
    });
  };
  const auto norm = [&](float* sums, float* learned, float* inverse, int64_t scale, int64_t shift, int width,
                        uint32_t site) {
    const Norm layer{sums, learned, inverse, scale, shift, kinds, rows, width, learning, site};
    TANDEM_LAUNCH("dqn norm", norm_relu, dim3(cuts(rows, kNormWarps), kinds, shape.sets()), dim3(kNormWarps * 32),
                  stream, shape, w, layer);
  };
  product(in, nullptr, w.sums1, in_kinds, p.w1, p.b1, shape.state, shape.wide, false);
  norm(w.sums1, w.out1, w.inverse1, p.scale1, p.shift1, shape.wide, kDropout);
  product(w.sums1, learning ? w.out1 : nullptr, w.sums2, kinds, p.w2, p.b2, shape.wide, shape.narrow, false);
  norm(w.sums2, w.out2, w.inverse2, p.scale2, p.shift2, shape.narrow, kDropout + 1);
  product(w.sums2, learning ? w.out2 : nullptr, w.both, kinds, p.heads, p.heads_bias, shape.narrow, 2 * shape.head,
          true);
}

void queue_decisions(const DqnShape& shape, const DqnPlaces& places, const DqnWork& work, CUstream_st* stream) {
  queue_forward(shape, places, work, work.observed, 1, 1, shape.environments, false, stream);
  TANDEM_LAUNCH("dqn decide", decide, dim3(cuts(shape.environments, kDecideWarps), 1, shape.sets()),
                dim3(kDecideWarps * 32), stream, shape, places, work);
}

}  // namespace tandem::cuda
