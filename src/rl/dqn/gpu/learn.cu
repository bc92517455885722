// rl/dqn/gpu/learn.cu -- the loss of the dueling net on a GPU, and the way back to the gradients of its weights.
#include <algorithm>
#include <type_traits>

#include "rl/dqn/gpu/dqn_kernels.h"
#include "rl/dqn/gpu/dueling_head.h"
#include "rl/dqn/gpu/gemm_staged.h"
#include "rl/dqn/gpu/layer_norm.h"
#include "rl/replay/priority.h"

namespace tandem::cuda {
namespace {

// Errors, the loss, and its gradient down to the heads' features. Three warps a row find its values: of the net before
// and after, and of the target after; a fourth its importance, or one of the three where so many rows would not find
// room on the GPU at once.
constexpr int kLossRows = 4;
template <int kWarpsOfRow>
constexpr int kLossWarps = kWarpsOfRow* kLossRows;

__device__ int64_t warp_least(int64_t x) {
#pragma unroll
  for (int width = 16; width > 0; width /= 2) {
    const int64_t other = __shfl_xor_sync(kWholeWarp, x, width);
    x = other < x ? other : x;
  }
  return x;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int kLossBlocks = 2;  // of three warps a row, on a processor
#else
constexpr int kLossBlocks = 3;
#endif
template <int kWarpsOfRow>
__global__ void __launch_bounds__(kLossWarps<kWarpsOfRow> * 32, kWarpsOfRow == 4 ? 2 : kLossBlocks)
    loss(DqnShape shape, DqnPlaces places, DqnWork work, float* tail) {
  constexpr int kWarps = kLossWarps<kWarpsOfRow>;
  __shared__ int64_t least_of[kWarps];
  __shared__ float values[kLossRows][3][kMostGpuActions], weights[kLossRows];
  const int set = blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int index = shape.job_of(set), shard = set - index * shape.count + shape.first;
  const DqnJob& job = work.jobs[index];
  const int features = 2 * shape.head, first = blockIdx.x * kLossRows;
  int64_t least = kLargestPriority + 1;
  if (tail) {  // known to all, from the combined maximum
    least = job.tops[1];
  } else {  // this worker has all shards
    const int64_t* const priorities = work.priority + int64_t{index} * shape.batch;
    for (int k = threadIdx.x; k < shape.batch; k += kWarps * 32) least = priorities[k] < least ? priorities[k] : least;
    least = warp_least(least);
    if (lane == 0) least_of[warp] = least;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < kWarps; ++w) least = least_of[w] < least ? least_of[w] : least;
    if (threadIdx.x == 0 && blockIdx.x == 0 && set == index * shape.count) job.tops[1] = least;
  }
  if (const int kind = warp / kLossRows, r = first + warp % kLossRows; r < shape.piece) {
    if (kind < 3) {
      float q[kMostGpuActions];
      values_of<kWarpsOfRow == 4>(shape, places, kind == 2 ? job.target : job.net,
                                  work.both + ((int64_t{set} * 3 + kind) * shape.piece + r) * features, q);
#pragma unroll
      for (int a = 0; a < kMostGpuActions; ++a)
        if (lane == a) values[warp % kLossRows][kind][a] = q[a];
    }
    if (kind == kWarpsOfRow - 1 && lane == 0)
      weights[warp % kLossRows] =
          importance_weight(work.priority[int64_t{set} * shape.piece + r], least, work.order->beta);
  }
  __syncthreads();
  const int r = first + warp;
  if (warp >= kLossRows || r >= shape.piece) return;
  const float share = static_cast<float>(1 / static_cast<double>(shape.batch));
  float* const errors = tail ? tail + int64_t{index} * (2 + shape.batch) + 2 : job.errors;
  const int64_t row = int64_t{set} * shape.piece + r;
  const float* const both = work.both + (int64_t{set} * 3 * shape.piece + r) * features;
  const float weight = weights[warp] * share;
  const float(&next)[kMostGpuActions] = values[warp][1];
  int best = 0;
  for (int a = 1; a < shape.actions; ++a)
    if (next[a] > next[best]) best = a;
  const float goal = work.reward[row] + work.discount[row] * values[warp][2][best];
  const int action = work.action[row];
  const float q = values[warp][0][action], error = q - goal, size = fabsf(error);
  const float g = weight *
                  (error < -1  ? -1.0f
                   : error > 1 ? 1.0f
                               : error) *
                  work.order->loss_scale,
              mean = g / static_cast<float>(shape.actions);
  float* const out = work.out_grad + row * (1 + shape.actions);
  if (lane == 0) {
    errors[shard * shape.piece + r] = size;
    work.row_loss[row] = weight * (size < 1 ? 0.5f * error * error : size - 0.5f);
    work.row_q[row] = q * share;
    out[0] = g;
  }
  if (lane < shape.actions) out[1 + lane] = (lane == action ? g : 0.0f) - mean;
  float* const back = work.both_grad + row * features;
  const auto fours = [](const float* at) { return *reinterpret_cast<const float4*>(at); };
  for (int i = 4 * lane; i < shape.head; i += 128) {
    const float4 on = fours(both + i), value = fours(job.net + places.value + i);
    *reinterpret_cast<float4*>(back + i) = {on.x > 0 ? g * value.x : 0.0f, on.y > 0 ? g * value.y : 0.0f,
                                            on.z > 0 ? g * value.z : 0.0f, on.w > 0 ? g * value.w : 0.0f};
    float4 sum = {0, 0, 0, 0};
#pragma unroll
    for (int a = 0; a < kMostGpuActions; ++a) {
      const float4 w = fours(job.net + places.advantage + (a < shape.actions ? a : 0) * shape.head + i);
      const float by = a < shape.actions ? (a == action ? g : 0.0f) - mean : 0.0f;
      sum = {fmaf(by, w.x, sum.x), fmaf(by, w.y, sum.y), fmaf(by, w.z, sum.z), fmaf(by, w.w, sum.w)};
    }
    const float4 above = fours(both + shape.head + i);
    *reinterpret_cast<float4*>(back + shape.head + i) = {above.x > 0 ? sum.x : 0.0f, above.y > 0 ? sum.y : 0.0f,
                                                         above.z > 0 ? sum.z : 0.0f, above.w > 0 ? sum.w : 0.0f};
  }
}

// ---- the way back ----

// out = in * weight, of rows that are learned from.
template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    linear_backward(DqnShape shape, DqnWork work, RowTiles tiles, const float* in, float* out, int64_t weight,
                    int in_width, int out_width) {
  TANDEM_SHARED(typename Shape::Memory, memory);
  const int first_tile = blockIdx.y * Shape::kDown, index = blockIdx.z;
  const int first_column = blockIdx.x * Shape::kAcross * kTileColumns;
  const float* const net = work.jobs[index].net;
  const auto row_of = [&](int tile) {
    return (int64_t{index} * shape.count + tiles.set(tile)) * shape.piece + tiles.row(tile);
  };
  tile_products<Shape, Layout::kKInner, Layout::kKOuter>(
      memory,
      [&](int t) {
        const int tile = first_tile + t;
        return Factor<Layout::kKInner>{in + row_of(tile) * in_width, in_width, tiles.rows(tile), in_width};
      },
      Factor<Layout::kKOuter>{net + weight + first_column, out_width, out_width - first_column, in_width},
      slices_in_turn(),
      [&](int t) {
        const Target<Shape> target{out + row_of(first_tile + t) * out_width + first_column, out_width,
                                   tiles.rows(first_tile + t), out_width - first_column};
        return [target](int row, int column, float4 y) {
          if (target.has(row, column)) target.put(row, column, y);
        };
      });
}

template <int kFours>
__global__ void __launch_bounds__(kNormWarps * 32) norm_back(DqnShape shape, DqnWork work, NormBack layer) {
  const int row = blockIdx.x * kNormWarps + threadIdx.x / 32, set = blockIdx.z;
  if (row >= shape.piece) return;
  float4 g[kFours];
  fetch_row(layer.dz + (int64_t{set} * shape.piece + row) * layer.width, layer.width, g);
  norm_row_back(shape, layer, work.jobs[shape.job_of(set)].net, set, row, g, [](int, float4) {});
}

// ---- gradients of the weights, added up along the tree of shards ----

// One matrix: gradient[o][i] = sum over rows of dy[row][o] * x[row][i].
struct Matrix {
  const float *dy, *x;
  int64_t x_set;  // floats from one set's x to the next
  int64_t to;
  int out, in, first_block;
};
struct Matrices {
  Matrix of[3];
  int blocks;
};

// Where the shards' tree is one of pairs, of pairs, of pairs: they are the parts of the products.
constexpr int kPairedShards = kParts;
template <class Shape>
__device__ void paired_gradient(const DqnShape& shape, const Matrix& m, int block, int job, float* gradient,
                                typename Shape::Memory& memory) {
  constexpr int kColumns = Shape::kAcross * kTileColumns;
  const int across = (m.in + kColumns - 1) / kColumns;
  const int first_out = block / across * Shape::kDown * kTileRows, first_in = block % across * kColumns;
  const int64_t set = int64_t{job} * kPairedShards, dy_set = int64_t{shape.piece} * m.out;
  tile_products<Shape, Layout::kKOuter, Layout::kKOuter>(
      memory,
      [&](int t) {
        const int out = first_out + t * kTileRows;
        return Factor<Layout::kKOuter>{m.dy + set * dy_set + out, m.out, m.out - out, shape.piece};
      },
      Factor<Layout::kKOuter>{m.x + set * m.x_set + first_in, m.in, m.in - first_in, shape.piece},
      Parts{dy_set, m.x_set, 0, kSlice},
      [&](int t) {
        const int out = first_out + t * kTileRows;
        const Target<Shape> target{gradient + m.to + int64_t{out} * m.in + first_in, m.in, m.out - out,
                                   m.in - first_in};
        return [target](int row, int column, float4 sum) {
          if (target.has(row, column)) target.put(row, column, sum);
        };
      });
}

// Any tree. Warp w makes the products of shard w; shards beyond the block's warps come in further rounds.
template <class Shape>
__device__ void tree_gradient(const DqnShape& shape, const Matrix& m, int block, int job, float* gradient,
                              typename Shape::Memory& memory) {
  const int across = (m.in + kTileColumns - 1) / kTileColumns, warp = threadIdx.x / 32;
  const int first_out = block / across * kTileRows, first_in = block % across * kTileColumns;
  const int row = static_cast<int>(threadIdx.x) * 4 / kTileColumns, column = threadIdx.x * 4 % kTileColumns;
  Stack<4, kMostGpuDepth> stack;
  for (int base = 0; base < shape.count; base += Shape::kWarps) {
    const int here = shape.count - base > Shape::kWarps ? Shape::kWarps : shape.count - base;
    const int64_t set = int64_t{job} * shape.count + base + warp;
    if (base > 0) __syncthreads();  // all have taken of the round before
    if (warp < here) {
      WarpTile<Layout::kKOuter, Layout::kKOuter, Shape::kPrecision> sums;
      sums.multiply({m.dy + set * shape.piece * m.out + first_out, m.out, m.out - first_out, shape.piece},
                    {m.x + set * m.x_set + first_in, m.in, m.in - first_in, shape.piece}, Parts{0, 0, 0, kSlice}, 0, 1,
                    [&](int) { sums.put(memory.numbers + warp * kTile); });
    }
    __syncthreads();
    for (int w = 0; w < here; ++w) {
      const float4 sum = *reinterpret_cast<const float4*>(memory.numbers + w * kTile + place(row, column));
      stack.push({sum.x, sum.y, sum.z, sum.w}, shape.merges[base + w]);
    }
  }
  if (first_out + row >= m.out || first_in + column >= m.in) return;
  const float(&sum)[4] = stack.top();
  *reinterpret_cast<float4*>(gradient + m.to + int64_t{first_out + row} * m.in + first_in + column) = {sum[0], sum[1],
                                                                                                       sum[2], sum[3]};
}

// Sums of one column over rows: a[row][column], or a times b there.
struct Column {
  const float *a, *b;
  int a_row, b_row;
  int64_t a_set, b_set;
};

__device__ float column_sum(const DqnShape& shape, const Column& c, int64_t set) {
  const float *a = c.a + set * c.a_set, *b = c.b ? c.b + set * c.b_set : nullptr;
  float sum = 0;
  // So many rows, fetched together. Steps of a pointer, no test of each row and no product: this is as much about
  // instructions as about memory, and places that are known ahead are too many for registers.
  const auto add = [&](auto rows) {
    float x[rows.value];
#pragma unroll
    for (int r = 0; r < rows.value; ++r, a += c.a_row) x[r] = *a;
    if (b) {
      float y[rows.value];
#pragma unroll
      for (int r = 0; r < rows.value; ++r, b += c.b_row) y[r] = *b;
#pragma unroll
      for (int r = 0; r < rows.value; ++r) sum = fmaf(x[r], y[r], sum);
    } else {
#pragma unroll
      for (int r = 0; r < rows.value; ++r) sum = sum + x[r];
    }
  };
  constexpr int kMany = 32, kSome = 8;
  int left = shape.piece;
#pragma unroll 1
  for (; left >= kMany; left -= kMany) add(std::integral_constant<int, kMany>{});
#pragma unroll 1
  for (; left >= kSome; left -= kSome) add(std::integral_constant<int, kSome>{});
#pragma unroll 1
  for (; left > 0; --left) add(std::integral_constant<int, 1>{});
  return sum;
}

constexpr int64_t kNoColumn = -1, kLossColumn = -2, kQColumn = -3;

// Biases, norms, the two output layers, then loss and mean Q: number i of them all, and where its gradient goes.
__device__ int64_t column_of(const DqnShape& shape, const DqnPlaces& p, const DqnWork& w, int i, Column& c) {
  const int outs = 1 + shape.actions, both = 2 * shape.head;
  const int64_t rows = shape.piece;
  const auto norm = [&](const float* dx, const float* dz, const float* normed, int width, int64_t bias, int64_t scale,
                        int64_t shift) -> int64_t {
    const int part = i / width, at = i % width;
    const float* const from = part == 0 ? dx : dz;
    c = {from + at, part == 1 ? normed + at : nullptr, width, width, rows * width, 3 * rows * width};
    return (part == 0 ? bias : part == 1 ? scale : shift) + at;
  };
  if (i < 3 * shape.wide) return norm(w.dx1, w.dz1, w.sums1, shape.wide, p.b1, p.scale1, p.shift1);
  i -= 3 * shape.wide;
  if (i < 3 * shape.narrow) return norm(w.dx2, w.dz2, w.sums2, shape.narrow, p.b2, p.scale2, p.shift2);
  i -= 3 * shape.narrow;
  if (i < both) {
    c = {w.both_grad + i, nullptr, both, 0, rows * both, 0};
    return p.heads_bias + i;
  }
  i -= both;
  if (i < shape.head) {
    c = {w.out_grad, w.both + i, outs, both, rows * outs, 3 * rows * both};
    return p.value + i;
  }
  i -= shape.head;
  if (i < shape.actions * shape.head) {
    c = {w.out_grad + 1 + i / shape.head,
         w.both + shape.head + i % shape.head,
         outs,
         both,
         rows * outs,
         3 * rows * both};
    return p.advantage + i;
  }
  i -= shape.actions * shape.head;
  if (i < outs) {
    c = {w.out_grad + i, nullptr, outs, 0, rows * outs, 0};
    return i == 0 ? p.value_bias : p.advantage_bias + i - 1;
  }
  i -= outs;
  if (i >= 2) return kNoColumn;
  c = {i == 0 ? w.row_loss : w.row_q, nullptr, 1, 0, rows, 0};
  return i == 0 ? kLossColumn : kQColumn;
}

// 32 columns, one to a lane; warp w adds up shard w, then w + kWarps, ... `sums` has room for 32 of each shard.
template <int kWarps>
__device__ void column_block(const DqnShape& shape, const DqnPlaces& places, const DqnWork& work, int block, int job,
                             float* gradient, float* tail, float* sums) {
  const int lane = threadIdx.x % 32;
  Column column{};
  const int64_t at = column_of(shape, places, work, block * 32 + lane, column);
  for (int s = threadIdx.x / 32; s < shape.count; s += kWarps)
    sums[32 * s + lane] = at == kNoColumn ? 0.0f : column_sum(shape, column, int64_t{job} * shape.count + s);
  __syncthreads();
  if (threadIdx.x >= 32 || at == kNoColumn) return;
  Stack<1, kMostGpuDepth> stack;
  for (int s = 0; s < shape.count; ++s) stack.push({sums[32 * s + lane]}, shape.merges[s]);
  float* const told = tail ? tail + int64_t{job} * (2 + shape.batch) : work.job_sums + 2 * job;
  (at == kLossColumn ? told[0] : at == kQColumn ? told[1] : gradient[at]) = stack.top()[0];
}

// Blocks of eight warps, or of four where so many blocks would not find room at once.
constexpr int kColumnWarpsOfProcessor = 24;
template <int kWarps>
__global__ void __launch_bounds__(kWarps * 32, kColumnWarpsOfProcessor / kWarps)
    column_gradients(DqnShape shape, DqnPlaces places, DqnWork work, float* gradient, float* tail) {
  __shared__ float sums[32 * 32];
  const int job = blockIdx.y;
  column_block<kWarps>(shape, places, work, blockIdx.x, job, gradient + work.jobs[job].place, tail, sums);
}

// The columns' blocks come first, if they are here.
template <bool kPaired, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    weight_gradients(DqnShape shape, DqnPlaces places, DqnWork work, Matrices matrices, float* gradient, float* tail) {
  TANDEM_SHARED(typename Shape::Memory, memory);
  const int job = blockIdx.y, block = static_cast<int>(blockIdx.x) - (static_cast<int>(gridDim.x) - matrices.blocks);
  float* const to = gradient + work.jobs[job].place;
  if constexpr (Shape::kAcross == 1)
    if (block < 0) {
      column_block<Shape::kWarps>(shape, places, work, blockIdx.x, job, to, tail, memory.numbers);
      return;
    }
  int which = 0;
  while (which < 2 && block >= matrices.of[which + 1].first_block) ++which;
  const Matrix& m = matrices.of[which];
  if constexpr (kPaired)
    paired_gradient<Shape>(shape, m, block - m.first_block, job, to, memory);
  else
    tree_gradient<Shape>(shape, m, block - m.first_block, job, to, memory);
}

bool is_paired(const DqnShape& shape) {
  constexpr int kMerges[kPairedShards] = {0, 1, 0, 2, 0, 1, 0, 3};
  return shape.count == kPairedShards && std::equal(kMerges, kMerges + kPairedShards, shape.merges);
}

// From the heads' gradient to that of the first layer's sums.
void queue_backward(const DqnShape& shape, const DqnPlaces& p, const DqnWork& w, CUstream_st* stream) {
  if (queue_fused_backward(shape, p, w, stream)) return;
  const auto back = [&](const float* in, float* out, int64_t weight, int in_width, int out_width) {
    const RowTiles tiles(shape.count, shape.piece);
    const int64_t across = cuts(out_width, kTileColumns);
    const bool whole = tiles.whole() && divides(2 * kTileColumns, out_width) && divides(kParts * kSlice, in_width);
    with_tiles(shape, across * shape.jobs * tiles.count, whole, [&](auto chosen) {
      using Shape = decltype(chosen);
      TANDEM_LAUNCH_WITH(sizeof(typename Shape::Memory), "dqn linear back", linear_backward<Shape>,
                         dim3(across / Shape::kAcross, tiles.blocks(Shape::kDown), shape.jobs), dim3(Shape::kThreads),
                         stream, shape, w, tiles, in, out, weight, in_width, out_width);
    });
  };
  const auto norm = [&](const NormBack& layer) {
    with_fours(layer.width, [&](auto fours) {
      TANDEM_LAUNCH("dqn norm back", norm_back<fours.value>, dim3(cuts(shape.piece, kNormWarps), 1, shape.sets()),
                    dim3(kNormWarps * 32), stream, shape, w, layer);
    });
  };
  back(w.both_grad, w.dz2, p.heads, 2 * shape.head, shape.narrow);
  norm(second_norm_back(shape, p, w));
  back(w.dx2, w.dz1, p.w2, shape.narrow, shape.wide);
  norm(first_norm_back(shape, p, w));
}

}  // namespace

void queue_learn(const DqnShape& shape, const DqnPlaces& p, const DqnWork& w, float* gradient, float* tail,
                 CUstream_st* stream) {
  queue_forward(shape, p, w, stream);
  const dim3 of_rows(cuts(shape.piece, kLossRows), shape.sets());
  if (static_cast<int>(of_rows.x * of_rows.y) <= 2 * processors())
    TANDEM_LAUNCH("dqn loss", loss<4>, of_rows, dim3(kLossWarps<4> * 32), stream, shape, p, w, tail);
  else
    TANDEM_LAUNCH("dqn loss", loss<3>, of_rows, dim3(kLossWarps<3> * 32), stream, shape, p, w, tail);
  queue_backward(shape, p, w, stream);
  const int64_t rows = shape.piece;
  Matrices matrices{{{w.dx1, w.states, 2 * rows * shape.state, p.w1, shape.wide, shape.state, 0},
                     {w.dx2, w.out1, rows * shape.wide, p.w2, shape.narrow, shape.wide, 0},
                     {w.both_grad, w.out2, rows * shape.narrow, p.heads, 2 * shape.head, shape.narrow, 0}},
                    0};
  const int columns =
      3 * shape.wide + 3 * shape.narrow + 2 * shape.head + (1 + shape.actions) * shape.head + 1 + shape.actions + 2;
  const auto launch = [&](auto kernel, auto chosen) {
    using Shape = decltype(chosen);
    matrices.blocks = 0;
    for (Matrix& m : matrices.of) {
      m.first_block = matrices.blocks;
      matrices.blocks +=
          static_cast<int>(cuts(m.out, Shape::kDown * kTileRows) * cuts(m.in, Shape::kAcross * kTileColumns));
    }
    const bool here = Shape::kAcross == 1;  // blocks of four tiles hold more than columns need
    if (!here) {
      const dim3 blocks(cuts(columns, 32), shape.jobs);
      if (static_cast<int>(blocks.x * blocks.y) <= kColumnWarpsOfProcessor / 8 * processors())
        TANDEM_LAUNCH("dqn columns", column_gradients<8>, blocks, dim3(8 * 32), stream, shape, p, w, gradient, tail);
      else
        TANDEM_LAUNCH("dqn columns", column_gradients<4>, blocks, dim3(4 * 32), stream, shape, p, w, gradient, tail);
    }
    TANDEM_LAUNCH_WITH(sizeof(typename Shape::Memory), "dqn weights", kernel,
                       dim3((here ? cuts(columns, 32) : 0) + matrices.blocks, shape.jobs), dim3(Shape::kThreads),
                       stream, shape, p, w, matrices, gradient, tail);
  };
  int64_t tiles = 0;
  bool whole = divides(kSlice, shape.piece);
  for (const Matrix& m : matrices.of) {
    tiles += int64_t{cuts(m.out, kTileRows)} * cuts(m.in, kTileColumns);
    whole = whole && divides(2 * kTileRows, m.out) && divides(2 * kTileColumns, m.in);
  }
  if (is_paired(shape))
    with_tiles(shape, shape.jobs * tiles, whole,
               [&](auto chosen) { launch(weight_gradients<true, decltype(chosen)>, chosen); });
  else
    with_precision(shape, [&](auto precision) {
      launch(weight_gradients<false, OneTile<precision.value>>, OneTile<precision.value>{});
    });
}

}  // namespace tandem::cuda
