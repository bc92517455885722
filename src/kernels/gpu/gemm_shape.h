// kernels/gpu/gemm_shape.h -- the sizes of a GEMM, and which block shape a launch takes for them.
#pragma once

#include <type_traits>

#include "kernels/gpu/block_choice.h"
#include "kernels/gpu/gemm_staged.h"

namespace tandem::cuda {

// [groups * m, n] = A [groups * m, k] * B [k, n], `batch` of them in one launch, each with operands of its own. Rows
// are tiled within their group (a shard), so that a row's tile does not depend on how many groups a launch has.
struct GemmShape {
  int groups = 1, m = 0, n = 0, k = 0, batch = 1;
  int64_t tiles() const {
    return int64_t{batch} * groups * ceil_div(m, kTileRows) * static_cast<int64_t>(ceil_div(n, kTileColumns));
  }
};

// Which rows of a GEMM an M tile covers. Tiles are numbered over all groups. Made on the host, with a multiplicative
// inverse: integer division is slow on a GPU.
struct RowTiles {
  int per_group, group_rows, count;  // M tiles of a group, rows of a group; M tiles of all groups
  uint64_t inverse;                  // 2^32 / per_group, rounded up
  RowTiles(int groups, int rows)
      : per_group((rows + kTileRows - 1) / kTileRows),
        group_rows(rows),
        count(groups * per_group),
        inverse((uint64_t{1} << 32) / static_cast<uint64_t>(per_group) + 1) {}
  // Blocks along M, where a block has tiles_m tiles one below the other.
  __host__ __device__ int blocks(int tiles_m) const { return (count + tiles_m - 1) / tiles_m; }
  bool full() const { return group_rows % kTileRows == 0 && count % 2 == 0; }
  // A tile's group; its first row within the group; the rows of the group from there on, 0 for a tile beyond the last.
  __device__ int group(int tile) const { return static_cast<int>(static_cast<uint32_t>(tile) * inverse >> 32); }
  __device__ int row(int tile) const { return (tile - group(tile) * per_group) * kTileRows; }
  __device__ int rows(int tile) const { return tile < count ? group_rows - row(tile) : 0; }
};

// Whether blocks of 2 x 2 tiles cover the output without a partial tile, and all K splits have the same number of
// slices.
inline bool has_full_blocks(const GemmShape& shape) {
  return RowTiles(shape.groups, shape.m).full() && divides(2 * kTileColumns, shape.n) &&
         divides(kSplitK * kSliceK, shape.k);
}

// Calls with the precision as a template argument.
template <class Call>
void with_precision(Precision precision, Call call) {
  using enum Precision;
  switch (precision) {
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

// Calls call(BlockShape{}) with the block shape for a launch of `tiles` output tiles; `full`: has_full_blocks(). 2 x 2
// tiles are for GPUs with shared memory for three such blocks on an SM (server GPUs from Hopper on). Thresholds were
// measured on an H200.
inline constexpr int64_t kFourTilesFrom = 500, kTwoTilesFrom = 768;
template <class Call>
void with_block_shape(const BlockChoice& choice, int64_t tiles, bool full, Call call) {
  with_precision(choice.precision, [&](auto precision) {
    using Four = FourTiles<precision.value>;
    const int asked = choice.tiles;
    const bool staged = full && (asked == 4 || (asked == 0 && tiles >= kFourTilesFrom)) &&
                        blocks_per_sm(sizeof(typename Four::Memory)) >= Four::kBlocksPerSm;
    if (staged)
      call(Four{});
    else if (asked == 1 || (asked == 0 && tiles < kTwoTilesFrom))
      call(OneTile<precision.value>{});
    else
      call(TwoTiles<precision.value>{});
  });
}

}  // namespace tandem::cuda
