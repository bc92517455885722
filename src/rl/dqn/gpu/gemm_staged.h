// rl/dqn/gpu/gemm_staged.h -- products of many tiles: blocks of two tiles by two, whose factors are copied to shared
// memory some slices ahead. Half of what single tiles fetch, and nothing is waited for. The same bits as theirs.
#pragma once

#include <type_traits>

#include "rl/dqn/dqn_gpu.h"
#include "rl/dqn/gpu/gemm_warpgroup.h"

namespace tandem::cuda {

// A warp makes a tile. Of its sums that wait for others, two are in shared memory: three blocks find room on a
// processor.
template <Precision precision>
struct FourTiles {
  static constexpr Precision kPrecision = precision;
  static constexpr int kDown = 2, kAcross = 2, kWarps = kDown * kAcross, kThreads = 32 * kWarps;
  static constexpr int kBlocks = 3;  // of a processor
  static constexpr bool kWhole = true;
  static constexpr int kStages = 4, kPiece = kTileRows * kSlice, kStage = (kDown + kAcross) * kPiece;
  struct Staged {
    alignas(128) float pieces[kStages * kStage];
    float waits[kWarps][2][kTile];  // of pairs of pairs of parts, and of pairs of these
  };
  union Memory {
    Staged staged;
    GroupMemory group;
  };
};

// A slice of one tile's factor in shared memory: sixteen bytes of it by each thread of the block. Where depth is
// outside they are turned, so that the lanes of a fetch meet no bank twice.
template <Layout lies>
struct Piece {
  __device__ static int64_t from(const Factor<lies>& f, int thread) {
    return lies == Layout::kKInner ? thread / 4 * f.stride + thread % 4 * 4 : thread / 8 * f.stride + thread % 8 * 4;
  }
  __device__ static int to(int thread) {
    if (lies == Layout::kKInner) return thread * 4;
    const int k = thread / 8;
    return k * kTileRows + (thread % 8 ^ k / 4 * 2) * 4;
  }
  // Where lane 4 g + t finds its j-th four numbers.
  __device__ static int place(int g, int t, int j) {
    return lies == Layout::kKInner ? (8 * j + g) * kSlice + 4 * t : (4 * t + j) * kTileRows + (g ^ 2 * t) * 4;
  }
  // As Factor::fetch.
  __device__ static void fetch(const float* piece, float (&x)[4][4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      Factor<lies>::put(x, j,
                        *reinterpret_cast<const float4*>(piece + place(threadIdx.x % 32 / 4, threadIdx.x % 4, j)));
  }
};

// As group_products(), by warps that multiply for themselves.
template <class Shape, Layout a_lies, Layout b_lies, class A, class To>
__device__ void staged_products(typename Shape::Staged& memory, A a_of, const Factor<b_lies>& b, const Parts& parts,
                                To to) {
  const int warp = threadIdx.x / 32, down = warp / Shape::kAcross, across = warp % Shape::kAcross;
  WarpTile<a_lies, b_lies, Shape::kPrecision> tile, left;
#if defined(TANDEM_TENSOR_CORES)
  const Factor<a_lies> a = a_of(0);
  const int slices = a.depth / parts.step, total = kParts * slices;  // of a part, of all
  const Strides a_stride(a, parts, parts.a_shift, slices), b_stride(b, parts, parts.b_shift, slices);
  const int thread = threadIdx.x;
  const float *a_from[Shape::kDown], *b_from[Shape::kAcross];
#pragma unroll
  for (int t = 0; t < Shape::kDown; ++t) a_from[t] = a_of(t).data + Piece<a_lies>::from(a, thread);
#pragma unroll
  for (int t = 0; t < Shape::kAcross; ++t)
    b_from[t] = b.data + b.place_of(t * kTileColumns, 0) + Piece<b_lies>::from(b, thread);
  float* const a_to = memory.pieces + Piece<a_lies>::to(thread);
  float* const b_to = memory.pieces + Shape::kDown * Shape::kPiece + Piece<b_lies>::to(thread);
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
  const float* const a_piece = memory.pieces + down * Shape::kPiece;
  const float* const b_piece = memory.pieces + (Shape::kDown + across) * Shape::kPiece;
  int taken = 0;
  const auto add_part = [&](int) {
#pragma unroll 1
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
  };
#else
  const auto add_part = [&](int part) {
    Factor<a_lies> x = a_of(down);
    Factor<b_lies> y = b;
    x.data += part * parts.a_shift;
    y.data += part * parts.b_shift + y.place_of(across * kTileColumns, 0);
    for (int first = part * parts.k_shift; first < x.depth; first += parts.step) tile.add_products(x, y, first);
  };
#endif
  // Left + right: by pairs, of pairs, of these.
  float(&waits)[2][kTile] = memory.waits[warp];
  const auto wait_or_add = [&](int number, float* there) {
    if (number == 0)
      tile.keep(there);
    else
      tile.add_kept(there);
  };
#pragma unroll 1
  for (int pair = 0; pair < kParts / 2; ++pair) {
#pragma unroll 1
    for (int k = 0; k < 2; ++k) {
      if (k == 1) left = tile;
      tile.clear();
      add_part(2 * pair + k);
    }
    tile.add_to(left);
    wait_or_add(pair % 2, waits[0]);
    if (pair % 2 == 1) wait_or_add(pair / 2, waits[1]);
  }
  __syncwarp();  // what waited was a lane's own
  tile.put(waits[0]);
  __syncwarp();
  const int lane = threadIdx.x % 32, column = lane * 4 % kTileColumns;
  const auto target = to(down);
#pragma unroll
  for (int i = 0; i < kTile / 4 / 32; ++i) {
    const int row = (i * 32 + lane) * 4 / kTileColumns;
    target(row, column + across * kTileColumns, *reinterpret_cast<const float4*>(waits[0] + place(row, column)));
  }
}

// As the other tile_products(), where no tile is cut and all parts have as many slices: b begins with the block's first
// column, and columns count from there.
template <class Shape, Layout a_lies, Layout b_lies, class A, class To>
requires(Shape::kAcross > 1) __device__
    void tile_products(typename Shape::Memory& memory, A a_of, const Factor<b_lies>& b, const Parts& parts, To to) {
#if defined(TANDEM_GROUP_PRODUCTS)
  if constexpr (Shape::kPrecision != Precision::kTf32)
    group_products<Shape::kPrecision, a_lies, b_lies>(memory.group, a_of, b, parts, to);
  else
#endif
    staged_products<Shape, a_lies, b_lies>(memory.staged, a_of, b, parts, to);
}

template <class Call>
void with_precision(const DqnShape& shape, Call call) {
  using enum Precision;
  switch (shape.precision) {
    case kFp32:
      return call(std::integral_constant<Precision, kFp32>{});
    case kTf32:
      return call(std::integral_constant<Precision, kTf32>{});
    case kBf16:
      return call(std::integral_constant<Precision, kBf16>{});
    case kFp16:
      return call(std::integral_constant<Precision, kFp16>{});
  }
}

// Calls with the shape of blocks that suits so many tiles, or that was asked for; `whole`: four tiles make a block
// everywhere, and none is cut. All give the same bits. Blocks of four are for GPUs with room for three on a processor
// (Hopper's and later ones for servers).
inline constexpr int64_t kManyTiles = 500, kManyForTwo = 768;
template <Precision precision, class Call>
void with_tiles_of(const DqnShape& shape, int64_t tiles, bool whole, Call call) {
  using Four = FourTiles<precision>;
  const int asked = shape.tiles_of_block;
  const bool staged = whole && (asked == 4 || (asked == 0 && tiles >= kManyTiles)) &&
                      blocks_with_shared_memory(sizeof(typename Four::Memory)) >= Four::kBlocks;
  if (staged)
    call(Four{});
  else if (asked == 1 || (asked == 0 && tiles < kManyForTwo))
    call(OneTile<precision>{});
  else
    call(TwoTiles<precision>{});
}
template <class Call>
void with_tiles(const DqnShape& shape, int64_t tiles, bool whole, Call call) {
  with_precision(shape, [&](auto precision) { with_tiles_of<precision.value>(shape, tiles, whole, call); });
}

}  // namespace tandem::cuda
