// rl/cuda_dqn_staged.h -- products of many tiles: blocks of two tiles by two, a warp to each, whose factors are copied
// to shared memory some slices ahead. Half of what single tiles fetch, and nothing is waited for. The same bits as
// theirs.
#pragma once

#include "rl/cuda_dqn_products.h"
#include "rl/dqn_card.h"

namespace tandem::cuda {

struct FourTiles {
  static constexpr int kDown = 2, kAcross = 2, kWarps = kDown * kAcross, kThreads = 32 * kWarps;
  static constexpr int kBlocks = 2;  // of a processor: a warp's sums take half of its registers
  static constexpr int kStages = 4, kPiece = kTileRows * kSlice;
  static constexpr int kStage = (kDown + kAcross) * kPiece;
  struct Memory {
    alignas(128) float numbers[kStages * kStage];
  };
};

// A slice of one tile's factor in shared memory: sixteen bytes of it by each thread of the block. Where depth is
// outside they are turned, so that the lanes of a fetch meet no bank twice.
template <Lies lies>
struct Piece {
  __device__ static int64_t from(const Factor<lies>& f, int thread) {
    return lies == Lies::kDepthInside ? thread / 4 * f.stride + thread % 4 * 4 : thread / 8 * f.stride + thread % 8 * 4;
  }
  __device__ static int to(int thread) {
    if (lies == Lies::kDepthInside) return thread * 4;
    const int k = thread / 8;
    return k * kTileRows + (thread % 8 ^ k / 4 * 2) * 4;
  }
  // Where lane 4 g + t finds its j-th four numbers.
  __device__ static int place(int g, int t, int j) {
    return lies == Lies::kDepthInside ? (8 * j + g) * kSlice + 4 * t : (4 * t + j) * kTileRows + (g ^ 2 * t) * 4;
  }
  // As Factor::fetch.
  __device__ static void fetch(const float* piece, float (&x)[4][4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      Factor<lies>::put(x, j,
                        *reinterpret_cast<const float4*>(piece + place(threadIdx.x % 32 / 4, threadIdx.x % 4, j)));
  }
};

// The parts of a tile by one warp: left + right, by pairs, of pairs, of pairs. add(part, sums) adds up a part.
template <Lies a_lies, Lies b_lies, class Add>
__device__ void add_parts(WarpTile<a_lies, b_lies>& tile, Add add) {
  float waiting[3][2][4][4];
  int waits = 0;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    tile.clear();
    add(part);
#pragma unroll
    for (int bit = 1; bit < kParts && (part & bit); bit *= 2) {
      --waits;
#pragma unroll
      for (int i = 0; i < 32; ++i)
        tile.sums[i / 16][i / 4 % 4][i % 4] =
            waiting[waits][i / 16][i / 4 % 4][i % 4] + tile.sums[i / 16][i / 4 % 4][i % 4];
    }
    if (part + 1 == kParts) return;
#pragma unroll
    for (int i = 0; i < 32; ++i) waiting[waits][i / 16][i / 4 % 4][i % 4] = tile.sums[i / 16][i / 4 % 4][i % 4];
    ++waits;
  }
}

// As the other tile_products(), where no tile is cut and all parts are equally deep: b begins with the block's first
// column, and take()'s columns count from there.
template <class Shape, Lies a_lies, Lies b_lies, class A, class Take>
requires(Shape::kAcross > 1) __device__
    void tile_products(typename Shape::Memory& memory, A a_of, const Factor<b_lies>& b, const Parts& parts, Take take) {
  const int warp = threadIdx.x / 32, down = warp / Shape::kAcross, across = warp % Shape::kAcross;
  WarpTile<a_lies, b_lies> tile;
#if defined(TANDEM_TENSOR_CORES)
  const Factor<a_lies> a = a_of(0);
  const int slices = a.depth / parts.step, total = kParts * slices;  // of a part, of all
  const Strides a_stride(a, parts, parts.a_shift, slices), b_stride(b, parts, parts.b_shift, slices);
  const int thread = static_cast<int>(threadIdx.x);
  const float *a_from[Shape::kDown], *b_from[Shape::kAcross];
#pragma unroll
  for (int t = 0; t < Shape::kDown; ++t) a_from[t] = a_of(t).data + Piece<a_lies>::from(a, thread);
#pragma unroll
  for (int t = 0; t < Shape::kAcross; ++t)
    b_from[t] = b.data + b.place_of(t * kTileColumns, 0) + Piece<b_lies>::from(b, thread);
  float* const a_to = memory.numbers + Piece<a_lies>::to(thread);
  float* const b_to = memory.numbers + Shape::kDown * Shape::kPiece + Piece<b_lies>::to(thread);
  int copied = 0, of_part = 0, filled = 0;
  const auto copy = [&] {
    if (copied < total) {
#pragma unroll
      for (int t = 0; t < Shape::kDown; ++t) copy_ahead(a_to + filled + t * Shape::kPiece, a_from[t]);
#pragma unroll
      for (int t = 0; t < Shape::kAcross; ++t) copy_ahead(b_to + filled + t * Shape::kPiece, b_from[t]);
      const bool last = ++of_part == slices;
      if (last) of_part = 0;
#pragma unroll
      for (int t = 0; t < Shape::kDown; ++t) a_from[t] += a_stride.next + (last ? a_stride.part : 0);
#pragma unroll
      for (int t = 0; t < Shape::kAcross; ++t) b_from[t] += b_stride.next + (last ? b_stride.part : 0);
      ++copied;
    }
    end_of_stage();
    filled = filled + Shape::kStage == Shape::kStages * Shape::kStage ? 0 : filled + Shape::kStage;
  };
  for (int i = 0; i + 1 < Shape::kStages; ++i) copy();
  const float* const a_piece = memory.numbers + down * Shape::kPiece;
  const float* const b_piece = memory.numbers + (Shape::kDown + across) * Shape::kPiece;
  int taken = 0;
  add_parts(tile, [&](int) {
    for (int s = 0; s < slices; ++s) {
      wait_for_stage<Shape::kStages - 2>();
      __syncthreads();
      float x[4][4], y[4][4];
      Piece<a_lies>::fetch(a_piece + taken, x);
      Piece<b_lies>::fetch(b_piece + taken, y);
      copy();
      tile.add_products(x, y);
      taken = taken + Shape::kStage == Shape::kStages * Shape::kStage ? 0 : taken + Shape::kStage;
    }
  });
  __syncthreads();
#else
  add_parts(tile, [&](int part) {
    Factor<a_lies> x = a_of(down);
    Factor<b_lies> y = b;
    x.data += part * parts.a_shift;
    y.data += part * parts.b_shift + y.place_of(across * kTileColumns, 0);
    for (int first = part * parts.k_shift; first < x.depth; first += parts.step) tile.add_products(x, y, first);
  });
#endif
  float* const own = memory.numbers + warp * kTile;
  tile.put(own);
  __syncwarp();
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kTile / 4 / 32; ++i) {
    const int row = (i * 32 + lane) * 4 / kTileColumns, column = lane * 4 % kTileColumns;
    take(down, row, column + across * kTileColumns, *reinterpret_cast<const float4*>(own + place(row, column)));
  }
}

// Calls with the shape of blocks that suits so many tiles, or that was asked for; `whole`: four tiles make a block
// everywhere, and none is cut. All give the same bits. Blocks of four must be asked for: no card has timed them yet.
inline constexpr int64_t kManyTiles = 768;
template <class Call>
void with_tiles(const DqnShape& shape, int64_t tiles, bool whole, Call call) {
  const int chosen = shape.tiles_of_block ? shape.tiles_of_block : tiles < kManyTiles ? 1 : 2;
  if (chosen == 1)
    call(OneTile{});
  else if (chosen == 4 && whole)
    call(FourTiles{});
  else
    call(TwoTiles{});
}

}  // namespace tandem::cuda
