// rl/cuda_dqn_whole.cu -- the dueling net on a card, all layers of some rows by one block (cuda_dqn_rows.h): what many
// rows take instead of layer by layer.
#include <algorithm>

#include "rl/cuda_dqn.h"
#include "rl/cuda_dqn_norms.h"
#include "rl/cuda_dqn_rows.h"
#include "rl/cuda_dqn_values.h"

namespace tandem::cuda {
namespace {

// Which rows of a net's a warp has: every so manyth of its block's. Lane i knows the i-th; beyond the end its set is
// -1.
template <class Block>
struct RowsOfWarp {
  int set_there = -1, row_there = 0;
  __device__ RowsOfWarp(const DqnShape& shape, int job, int rows_of_set) {
    const int of_block = of(static_cast<int>(threadIdx.x) % 32);
    const int at = static_cast<int>(blockIdx.x) * Block::kRows + of_block;
    if (of_block >= Block::kRows || at >= shape.count * rows_of_set) return;
    const int shard = at / rows_of_set;
    set_there = job * shape.count + shard;
    row_there = at - shard * rows_of_set;
  }
  __device__ static int of(int i) { return i * Block::kWarps + static_cast<int>(threadIdx.x) / 32; }  // in the block
  __device__ int set(int i) const { return __shfl_sync(kWholeWarp, set_there, i); }
  __device__ int row(int i) const { return __shfl_sync(kWholeWarp, row_there, i); }
};

// A pass of `rows` rows of every set and kind. What is kept of it goes where single layers put it.
struct Pass {
  struct Layer {
    int64_t weight, bias;
    int depth, width;
    Norm norm;  // of all but the last
  };
  const float* in;
  int in_kinds, kinds, rows;
  Layer layers[3];
};

// Learning, what comes out is kept for the loss; acting, it is decided at once.
template <class Block, bool kLearning>
__global__ void __launch_bounds__(Block::kThreads, 1)
    forward_rows(DqnShape shape, DqnPlaces places, DqnWork work, Pass pass) {
#if defined(TANDEM_WHOLE_ROWS)
  TANDEM_SHARED(typename Block::Memory, memory);
  constexpr int kEach = Block::kEach, kFours = Block::kFours;
  const int kind = blockIdx.y, index = blockIdx.z, lane = threadIdx.x % 32;
  const DqnJob& job = work.jobs[index];
  const float* const net = kind == 2 ? job.target : job.net;
  const bool learned = kLearning && kind == 0;
  const RowsOfWarp<Block> rows(shape, index, pass.rows);
  const uint32_t shard_there = rows.set_there >= 0 ? work.worlds[rows.set_there].shard : 0;
  RandomKey key = work.order->key;
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
#pragma unroll
      for (int i = 0; i < kEach; ++i) memory.put(shape.state, rows.of(i), column, x[i]);
    }
  }
#pragma unroll 1
  for (int l = 0;; ++l) {
    const Pass::Layer& layer = pass.layers[l];
    show_to_products();
    __syncthreads();
    rows_product<Block>(memory, net + layer.weight, layer.depth, layer.width, [&](int column) {
      return [at = memory.sums(layer.width, 0) + column, stride = layer.width + Block::kPad,
              bias = net[layer.bias + column]](int row, float sum) { at[row * stride] = sum + bias; };
    });
    __syncthreads();
    if (l == 2) break;
    float4 first[kFours], scale[kFours], shift[kFours];
    fetch_row(net + layer.norm.scale, layer.width, scale);
    fetch_row(net + layer.norm.shift, layer.width, shift);
    const Moments there = moments_there<kEach>(layer.width, shape.epsilon_norm,
                                               [&](int i) { return memory.sums(layer.width, rows.of(i)); });
    fetch_row(memory.sums(layer.width, rows.of(0)), layer.width, first);
    key.site = layer.norm.site;
    __syncthreads();  // halves may stand where the first rows' sums were
#pragma unroll 1
    for (int i = 0; i < kEach; ++i) {
      const int of_block = rows.of(i);
      const int set = rows.set(i), row = rows.row(i);
      const float mean = __shfl_sync(kWholeWarp, there.mean, i), inverse = __shfl_sync(kWholeWarp, there.inverse, i);
      key.shard = __shfl_sync(kWholeWarp, shard_there, i);
      if (i > 0) fetch_row(memory.sums(layer.width, of_block), layer.width, first);
      norm_row(shape, layer.norm, key, set, row, learned && set >= 0, first, mean, inverse, scale, shift,
               [&](int column, float4 y) { memory.put(layer.width, of_block, column, y); });
    }
  }
  const int features = pass.layers[2].width;
#pragma unroll 1
  for (int i = 0; i < kEach; ++i) {
    const int set = rows.set(i), row = rows.row(i);
    if (set < 0) continue;
    float* const sums = memory.sums(features, rows.of(i));
    float* const to = kLearning ? work.both + ((int64_t{set} * pass.kinds + kind) * pass.rows + row) * features : sums;
    for (int column = lane * 4; column < features; column += 128)
      *reinterpret_cast<float4*>(to + column) = above_zero(*reinterpret_cast<const float4*>(sums + column));
    if constexpr (!kLearning) {
      __syncwarp();
      decide_row(shape, places, work, net, set, row, sums);
    }
  }
#endif
}

template <bool kLearning>
bool queue_pass(const DqnShape& shape, const DqnPlaces& p, const DqnWork& w, const float* in, int in_kinds, int kinds,
                int rows, CUstream_st* stream) {
  Pass pass{in, in_kinds, kinds, rows, {}};
  pass.layers[0] = {p.w1,
                    p.b1,
                    shape.state,
                    shape.wide,
                    {w.sums1, w.out1, w.inverse1, p.scale1, p.shift1, kinds, rows, shape.wide, kLearning, kDropout}};
  pass.layers[1] = {
      p.w2,
      p.b2,
      shape.wide,
      shape.narrow,
      {w.sums2, w.out2, w.inverse2, p.scale2, p.shift2, kinds, rows, shape.narrow, kLearning, kDropout + 1}};
  pass.layers[2] = {p.heads, p.heads_bias, shape.narrow, 2 * shape.head, {}};
  const int all = shape.count * rows;  // of a net
  return with_rows(
      shape, int64_t{kinds} * shape.jobs, all,
      [&](auto block) {
        return std::all_of(pass.layers, pass.layers + 3,
                           [&](const Pass::Layer& layer) { return block.holds(layer.depth, layer.width); });
      },
      [](auto block) { return forward_rows<decltype(block), kLearning>; },
      [&](auto block) {
        using Block = decltype(block);
        TANDEM_LAUNCH_WITH(sizeof(typename Block::Memory), "dqn forward", (forward_rows<Block, kLearning>),
                           dim3(cuts(all, Block::kRows), kinds, shape.jobs), dim3(Block::kThreads), stream, shape, p, w,
                           pass);
      });
}

}  // namespace

bool queue_whole_forward(const DqnShape& shape, const DqnPlaces& places, const DqnWork& work, CUstream_st* stream) {
  return queue_pass<true>(shape, places, work, work.states, 2, 3, shape.piece, stream);
}

bool queue_whole_decisions(const DqnShape& shape, const DqnPlaces& places, const DqnWork& work, CUstream_st* stream) {
  return queue_pass<false>(shape, places, work, work.observed, 1, 1, shape.environments, stream);
}

}  // namespace tandem::cuda
