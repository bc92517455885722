// kernels/cpu/gemm_tiles.h -- the loops of gemm.cc: tiles of R rows and a strip of columns, summed in registers.
//
// Included once per variant, inside its namespace and under its target pragma: a function compiled for another target
// could not inline the vector operations. A strip is a panel or a part of it, as wide as the variant's registers make
// best (Strip::kColumns). The rows of a tile are packed beside each other for each k, [k][R]: read where they lie, rows
// that are a power of two apart would share a few sets of the L1 cache. A few panels do not pay for the packing: they
// are multiplied by rows where they lie, in lower tiles.
//
// A tile's rows stay in the L1 cache while panel after panel comes from L2, so panels are fetched ahead.

// sums [R, strip] = rows [k][R], kApart floats apart, times a strip of a panel: for each shard of k rows, of which one
// lies behind the other, then along the tree. `merges` is that of weight_gradient(); the shards' sums are stacked on
// `sums`. It is a function of its own, with loops over R unrolled, because otherwise g++ 12 keeps sums in memory
// throughout.
template <int R, int kApart>
__attribute__((noinline)) void multiply(const float* rows, const float* strip, int64_t k, std::span<const int> merges,
                                        float* sums) {
  constexpr int64_t kAhead = 16 * kPanel;  // beyond the latency of L2; for tiles of 8 rows or more, of L3
  constexpr int kColumns = Strip::kColumns;
  for (const int of_shard : merges) {
    Strip acc[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) acc[r] = Strip::zero();
    for (int64_t p = 0; p < k; ++p, rows += kApart, strip += kPanel) {
      const Strip w = Strip::load(strip);
      for (int line = 0; line < kColumns; line += 16) __builtin_prefetch(strip + kAhead + line);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) acc[r].multiply_add(rows[r], w);
    }
    for (int merge = 0; merge < of_shard; ++merge) {
      sums -= R * kColumns;
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) acc[r].add(Strip::load(sums + r * kColumns));
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) acc[r].store(sums + r * kColumns);
    sums += R * kColumns;
  }
}
// The same for 1 <= height <= R rows; kApart 0: as many as the height.
template <int R, int kApart>
TANDEM_TILE void multiply_rows(int64_t height, const float* rows, const float* strip, int64_t k,
                               std::span<const int> merges, float* sums) {
  constexpr int kOwnApart = kApart == 0 ? R : kApart;
  if (height == R) return multiply<R, kOwnApart>(rows, strip, k, merges, sums);
  if constexpr (R > 1) multiply_rows<R - 1, kApart>(height, rows, strip, k, merges, sums);
}

// sums [R, strip] = R rows of x times a strip of a panel; with more rows g++ 12 has too few registers for their places.
constexpr int kUnpackedRows = std::min(8, Strip::kTileRows);
template <int R>
__attribute__((noinline)) void multiply_unpacked(const float* x, int64_t x_stride, const float* strip, int64_t k,
                                                 float* sums) {
  constexpr int kColumns = Strip::kColumns;
  Strip acc[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) acc[r] = Strip::zero();
  for (int64_t p = 0; p < k; ++p, strip += kPanel) {
    const Strip w = Strip::load(strip);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) acc[r].multiply_add(x[r * x_stride + p], w);
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) acc[r].store(sums + r * kColumns);
}
template <int R>
TANDEM_TILE void multiply_unpacked_rows(int64_t height, const float* x, int64_t x_stride, const float* strip, int64_t k,
                                        float* sums) {
  if (height == R) return multiply_unpacked<R>(x, x_stride, strip, k, sums);
  if constexpr (R > 1) multiply_unpacked_rows<R - 1>(height, x, x_stride, strip, k, sums);
}

// Of all tiles but the last, whose rest is nearly as high.
inline int tile_height(int64_t rows, int most = Strip::kTileRows) {
  const int64_t tiles = (rows + most - 1) / most;
  return tiles == 0 ? 1 : static_cast<int>((rows + tiles - 1) / tiles);
}

struct GemmTile {
  int64_t height;  // rows
  const float* rows;
  int64_t row_stride;  // above 0: rows of x, so far apart; else they are packed
  const float *panel, *bias;
  int64_t k;
  float* y;
  int64_t y_stride, columns;  // columns: of the panel that are in the matrix
  Write write;
};

TANDEM_TILE void gemm_tile(const GemmTile& t) {
  constexpr int kNoMerge = 0;
  alignas(64) float sums[Strip::kTileRows * Strip::kColumns];
  for (int64_t c = 0; c < t.columns; c += Strip::kColumns) {
    for (int64_t r = 0; r < t.height; ++r)  // y's rows may be far apart: they come while the sums are made
      for (int line = 0; line < Strip::kColumns; line += 16) __builtin_prefetch(t.y + r * t.y_stride + c + line, 1);
    if (t.row_stride > 0)
      multiply_unpacked_rows<kUnpackedRows>(t.height, t.rows, t.row_stride, t.panel + c, t.k, sums);
    else
      multiply_rows<Strip::kTileRows, 0>(t.height, t.rows, t.panel + c, t.k, {&kNoMerge, 1}, sums);
    const int64_t columns = std::min<int64_t>(Strip::kColumns, t.columns - c);
    for (int64_t r = 0; r < t.height; ++r) {
      float* const y = t.y + r * t.y_stride + c;
      float* const sum = sums + r * Strip::kColumns;
      if (columns == Strip::kColumns) {
        Strip whole = Strip::load(sum);
        if (t.bias) whole.add(Strip::load(t.bias + c));
        if (t.write == Write::kAdd) whole.add(Strip::load(y));
        whole.store(y);
        continue;
      }
      for (int64_t i = 0; i < columns; ++i) {
        if (t.bias) sum[i] += t.bias[c + i];
        y[i] = t.write == Write::kAdd ? sum[i] + y[i] : sum[i];
      }
    }
  }
}

// [tiles][k][height], the last tile [k][the rest]; 16 floats beyond it may be written.
inline void pack_tiles(const float* x, int64_t x_stride, int64_t rows, int64_t k, int height, float* tiles) {
  for (int64_t r = 0; r < rows; r += height)
    transpose(x + r * x_stride, x_stride, static_cast<int>(std::min<int64_t>(height, rows - r)), k, tiles + r * k,
              std::min<int64_t>(height, rows - r));
}

// Packed rows times all panels, in blocks of panels that stay in the L2 cache beside them.
inline void multiply_tiles(const GemmProduct& to, const float* tiles, int64_t first, int64_t rows, int height) {
  constexpr int64_t kBlockFloats = 64 << 10;
  const int64_t k = to.w.k(), n = to.w.n();
  const int64_t block_columns = std::max<int64_t>(1, kBlockFloats / (kPanel * std::max<int64_t>(k, 1))) * kPanel;
  for (int64_t block = 0; block < n; block += block_columns)
    for (int64_t r = 0; r < rows; r += height)
      for (int64_t c = block; c < std::min(n, block + block_columns); c += kPanel)
        gemm_tile({.height = std::min<int64_t>(height, rows - r),
                   .rows = tiles + r * k,
                   .row_stride = 0,
                   .panel = to.w.data() + c * k,
                   .bias = to.bias ? to.bias + c : nullptr,
                   .k = k,
                   .y = to.y + (first + r) * to.y_stride + c,
                   .y_stride = to.y_stride,
                   .columns = std::min(kPanel, n - c),
                   .write = to.write});
}

// Rows where they lie times all panels: a panel stays in the L1 cache while the rows of a block pass by.
inline void multiply_unpacked_panels(const GemmProduct& to, const float* x, int64_t x_stride, int64_t first,
                                     int64_t rows) {
  const int height = tile_height(rows, kUnpackedRows);
  const int64_t k = to.w.k(), n = to.w.n();
  for (int64_t c = 0; c < n; c += kPanel)
    for (int64_t r = first; r < first + rows; r += height)
      gemm_tile({.height = std::min<int64_t>(height, first + rows - r),
                 .rows = x + r * x_stride,
                 .row_stride = x_stride,
                 .panel = to.w.data() + c * k,
                 .bias = to.bias ? to.bias + c : nullptr,
                 .k = k,
                 .y = to.y + r * to.y_stride + c,
                 .y_stride = to.y_stride,
                 .columns = std::min(kPanel, n - c),
                 .write = to.write});
}

// Packing is worth its time for many columns, and where rows are far apart.
inline bool is_worth_packing(std::span<const GemmProduct> operands, int64_t x_stride) {
  constexpr int64_t kColumns = 64, kNear = 512;
  return operands.size() != 1 || x_stride < 1 || operands[0].w.n() > kColumns ||
         (x_stride > kNear && operands[0].w.n() > kPanel);
}

__attribute__((noinline)) void gemm_panels(const float* x, int64_t x_stride, std::span<const GemmProduct> operands,
                                           int64_t m, LineFloats& memory) {
  constexpr int64_t kBlockRows = 128;
  if (!is_worth_packing(operands, x_stride)) {
    for (int64_t first = 0; first < m; first += kBlockRows)
      multiply_unpacked_panels(operands[0], x, x_stride, first, std::min(kBlockRows, m - first));
    return;
  }
  const int64_t k = operands.empty() ? 0 : operands[0].w.k();
  grow(memory, std::min(m, kBlockRows) * k + 16);
  for (int64_t first = 0; first < m; first += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, m - first);
    const int height = tile_height(rows);
    const float* tiles = x + first * x_stride;  // a row alone is a tile
    if (rows > 1) {
      pack_tiles(x + first * x_stride, x_stride, rows, k, height, memory.data());
      tiles = memory.data();
    }
    for (const GemmProduct& to : operands) multiply_tiles(to, tiles, first, rows, height);
  }
}
