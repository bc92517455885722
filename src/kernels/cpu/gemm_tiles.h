// kernels/cpu/gemm_tiles.h -- the loops of gemm.cc: tiles of R x 32 accumulators that stay in registers.
//
// Included once per variant, inside its namespace and under its target pragma: a function compiled for another target
// could not inline the vector operations.

// y tile [R, 32] = x [R, k] times one panel. `columns`: of the tile that are in the matrix.
template <int R>
TANDEM_TILE void tile(const float* x, int64_t x_stride, const float* panel, int64_t k, const float* bias, float* y,
                      int64_t y_stride, int64_t columns) {
  Vec32 acc[R];
  for (int r = 0; r < R; ++r) acc[r] = Vec32::zero();
  for (int64_t p = 0; p < k; ++p) {
    const Vec32 w = Vec32::load(panel + p * kPanel);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) acc[r].multiply_add(x[r * x_stride + p], w);
  }
  alignas(64) float full[kPanel];
  for (int r = 0; r < R; ++r) {
    if (columns == kPanel) {
      if (bias) acc[r].add(Vec32::load(bias));
      acc[r].store(y + r * y_stride);
      continue;
    }
    acc[r].store(full);
    for (int64_t c = 0; c < columns; ++c) y[r * y_stride + c] = bias ? full[c] + bias[c] : full[c];
  }
}

// All rows times one panel: tiles of R rows, then of half as many for the rest.
template <int R>
TANDEM_TILE void panel_rows(const float* x, int64_t x_stride, const float* panel, int64_t k, const float* bias,
                            float* y, int64_t y_stride, int64_t columns, int64_t rows) {
  int64_t r = 0;
  for (; r + R <= rows; r += R)
    tile<R>(x + r * x_stride, x_stride, panel, k, bias, y + r * y_stride, y_stride, columns);
  if constexpr (R > 1)
    panel_rows<R / 2>(x + r * x_stride, x_stride, panel, k, bias, y + r * y_stride, y_stride, columns, rows - r);
}

__attribute__((noinline)) void gemm_panels(const float* x, int64_t x_stride, const Panels& w, const float* bias,
                                           float* y, int64_t y_stride, int64_t m) {
  for (int64_t c = 0; c < w.n(); c += kPanel)
    panel_rows<Vec32::kTileRows>(x, x_stride, w.data() + c * w.k(), w.k(), bias ? bias + c : nullptr, y + c, y_stride,
                                 std::min(kPanel, w.n() - c), m);
}

// Packs [rows, columns], rows `stride` apart, as [ceil(columns / kBlock)][rows][kBlock], padded with zeros.
template <int64_t kBlock>
TANDEM_TILE void pack_blocks(const float* src, int64_t stride, int64_t rows, int64_t columns, LineFloats& blocks) {
  grow(blocks, (columns + kBlock - 1) / kBlock * kBlock * rows);
  float* dst = blocks.data();
  for (int64_t c = 0; c < columns; c += kBlock)
    for (int64_t r = 0; r < rows; ++r, dst += kBlock) {
      const float* const row = src + r * stride + c;
      if (c + kBlock <= columns) {
        std::memcpy(dst, row, kBlock * sizeof(float));
      } else {
        std::copy_n(row, columns - c, dst);
        std::fill(dst + (columns - c), dst + kBlock, 0.0f);
      }
    }
}

// w_grad tile [R, 32] of R columns of y_grad and 32 of x, both packed. The stack holds partial sums of whole shards.
// height, columns: of the tile that are in the matrix.
template <int R>
TANDEM_TILE void weight_gradient_tile(const float* y_grad, const float* x, int64_t rows_per_shard,
                                      std::span<const int> merges, float* stack, float* w_grad, int64_t in,
                                      int64_t height, int64_t columns, Write write) {
  Vec32 acc[R];
  for (int r = 0; r < R; ++r) acc[r] = Vec32::zero();
  for (size_t shard = 0; shard < merges.size(); ++shard) {
#pragma GCC unroll 4
    for (int64_t row = 0; row < rows_per_shard; ++row, y_grad += R, x += kPanel) {
      const Vec32 w = Vec32::load(x);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) acc[r].multiply_add(y_grad[r], w);
    }
    for (int merge = 0; merge < merges[shard]; ++merge) {
      stack -= R * kPanel;
      for (int r = 0; r < R; ++r) acc[r].add(Vec32::load(stack + r * kPanel));
    }
    if (shard + 1 == merges.size()) break;
    for (int r = 0; r < R; ++r) {
      acc[r].store(stack + r * kPanel);
      acc[r] = Vec32::zero();
    }
    stack += R * kPanel;
  }
  if (height == R && columns == kPanel) {
    for (int r = 0; r < R; ++r) {
      acc[r].add(write == Write::kAdd ? Vec32::load(w_grad + r * in) : Vec32::zero());  // of -0 and 0: 0
      acc[r].store(w_grad + r * in);
    }
    return;
  }
  alignas(64) float full[R * kPanel];
  for (int r = 0; r < R; ++r) acc[r].store(full + r * kPanel);
  for (int64_t r = 0; r < height; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      float& element = w_grad[r * in + c];
      element = full[r * kPanel + c] + (write == Write::kAdd ? element : 0.0f);
    }
}

__attribute__((noinline)) void weight_gradient_tiles(const float* y_grad, int64_t y_grad_stride, const float* x,
                                                     int64_t x_stride, float* w_grad, int64_t out, int64_t in,
                                                     int64_t rows_per_shard, std::span<const int> merges, Write write,
                                                     WeightGradientScratch& scratch) {
  constexpr int R = Vec32::kTileRows;
  const int64_t all_rows = rows_per_shard * static_cast<int64_t>(merges.size());
  pack_blocks<R>(y_grad, y_grad_stride, all_rows, out, scratch.y_grad);
  pack_blocks<kPanel>(x, x_stride, all_rows, in, scratch.x);
  grow(scratch.stack, static_cast<int64_t>(merges.size()) * R * kPanel);
  for (int64_t c = 0; c < in; c += kPanel)
    for (int64_t o = 0; o < out; o += R)
      weight_gradient_tile<R>(scratch.y_grad.data() + o * all_rows, scratch.x.data() + c * all_rows, rows_per_shard,
                              merges, scratch.stack.data(), w_grad + o * in + c, in, std::min<int64_t>(R, out - o),
                              std::min(kPanel, in - c), write);
}
