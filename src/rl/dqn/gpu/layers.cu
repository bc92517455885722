// rl/dqn/gpu/layers.cu -- the dueling net on a GPU: forward, for acting and learning, and what is decided by it.
#include "rl/dqn/gpu/dqn_kernels.h"
#include "rl/dqn/gpu/dueling_head.h"
#include "rl/dqn/gpu/gemm_staged.h"
#include "rl/dqn/gpu/layer_norm.h"

namespace tandem::cuda {
namespace {

// ---- hidden layers ----

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
  tile_products<Shape, Layout::kKInner, Layout::kKInner>(
      memory,
      [&](int t) {
        const int tile = first_tile + t;
        const float* const from = layer.in_learned && kind == 0
                                      ? layer.in_learned + row_of(tile, 1, 0) * layer.in_width
                                      : layer.in + row_of(tile, layer.in_kinds, in_kind) * layer.in_width;
        return Factor<Layout::kKInner>{from, layer.in_width, tiles.rows(tile), layer.in_width};
      },
      Factor<Layout::kKInner>{net + layer.weight + int64_t{first_column} * layer.in_width, layer.in_width,
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

template <int kFours>
__global__ void __launch_bounds__(kNormWarps * 32) norm_relu(DqnShape shape, DqnWork work, Norm layer) {
  const int row = blockIdx.x * kNormWarps + threadIdx.x / 32, kind = blockIdx.y, set = blockIdx.z;
  if (row >= layer.rows) return;
  const DqnJob& job = work.jobs[shape.job_of(set)];
  const float* const net = kind == 2 ? job.target : job.net;
  const bool learned = layer.learning && kind == 0;
  float* const sums = layer.sums + ((int64_t{set} * layer.kinds + kind) * layer.rows + row) * layer.width;
  uint32_t drawn = 0;
  if (learned && shape.dropout > 0) {
    RandomKey key = work.order->key;
    key.shard = work.worlds[set].shard;
    key.site = layer.site;
    drawn = work.left ? *left_at(shape, work, layer.site, set, row)
                      : draw_left(key, row, layer.width, dropout_shape(shape.dropout));
  }
  float4 x[kFours], scale[kFours], shift[kFours];
  fetch_row(sums, layer.width, x);
  fetch_row(net + layer.scale, layer.width, scale);
  fetch_row(net + layer.shift, layer.width, shift);
  const Moments moments = moments_of(x, layer.width, shape.epsilon_norm);
  norm_row(shape, layer, drawn, set, row, learned, x, moments.mean, moments.inverse, scale, shift,
           [&](int column, float4 y) {
             if (!learned) *reinterpret_cast<float4*>(sums + column) = y;
           });
}

// ---- decisions ----

constexpr int kDecideWarps = 4;

__global__ void __launch_bounds__(kDecideWarps * 32) decide(DqnShape shape, DqnPlaces places, DqnWork work) {
  const int e = blockIdx.x * kDecideWarps + threadIdx.x / 32, set = blockIdx.z;
  if (e >= shape.environments) return;
  const int64_t row = int64_t{set} * shape.environments + e;
  remember_row(shape, work, set, e, next_leaf(shape, work.shards[set], e));
  decide_row(shape, places, work, work.jobs[shape.job_of(set)].net, set, e, chance_of(shape, work, set, e),
             work.both + row * 2 * shape.head);
}

void queue_layers(const DqnShape& shape, const DqnPlaces& p, const DqnWork& w, const float* in, int in_kinds, int kinds,
                  int rows, bool learning, CUstream_st* stream) {
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
    with_fours(width, [&](auto fours) {
      TANDEM_LAUNCH("dqn norm", norm_relu<fours.value>, dim3(cuts(rows, kNormWarps), kinds, shape.sets()),
                    dim3(kNormWarps * 32), stream, shape, w, layer);
    });
  };
  product(in, nullptr, w.sums1, in_kinds, p.w1, p.b1, shape.state, shape.wide, false);
  norm(w.sums1, w.out1, w.inverse1, p.scale1, p.shift1, shape.wide, kDropout);
  product(w.sums1, learning ? w.out1 : nullptr, w.sums2, kinds, p.w2, p.b2, shape.wide, shape.narrow, false);
  norm(w.sums2, w.out2, w.inverse2, p.scale2, p.shift2, shape.narrow, kDropout + 1);
  product(w.sums2, learning ? w.out2 : nullptr, w.both, kinds, p.heads, p.heads_bias, shape.narrow, 2 * shape.head,
          true);
}

}  // namespace

void queue_forward(const DqnShape& shape, const DqnPlaces& places, const DqnWork& work, CUstream_st* stream) {
  if (!queue_fused_forward(shape, places, work, stream))
    queue_layers(shape, places, work, work.states, 2, 3, shape.piece, true, stream);
}

void queue_decisions(const DqnShape& shape, const DqnPlaces& places, const DqnWork& work, CUstream_st* stream) {
  if (queue_fused_decisions(shape, places, work, stream)) return;
  queue_layers(shape, places, work, work.observed, 1, 1, shape.environments, false, stream);
  TANDEM_LAUNCH("dqn decide", decide, dim3(cuts(shape.environments, kDecideWarps), 1, shape.sets()),
                dim3(kDecideWarps * 32), stream, shape, places, work);
}

}  // namespace tandem::cuda
