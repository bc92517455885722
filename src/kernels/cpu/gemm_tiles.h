// kernels/cpu/gemm_tiles.h -- the loops of gemm.cc: tiles of R x 32 accumulators that stay in registers.
//
// Included once per variant, inside its namespace and under its target pragma: a function compiled for another target
// could not inline the vector operations.

// y tile [R, 32] = x [R, depth] times one panel.
template <int R>
TANDEM_TILE void tile(const float* x, int64_t x_stride, const float* panel, int64_t depth, const float* bias, float* y,
                      int64_t y_stride, int64_t columns) {
  Vec32 acc[R];
  for (int r = 0; r < R; ++r) acc[r] = Vec32::zero();
  for (int64_t k = 0; k < depth; ++k) {
    const Vec32 w = Vec32::load(panel + k * kPanel);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) acc[r].multiply_add(x[r * x_stride + k], w);
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

template <int R>
TANDEM_TILE void panel_rows(const float* x, int64_t x_stride, const float* panel, int64_t depth, const float* bias,
                            float* y, int64_t y_stride, int64_t columns, int64_t rows) {
  int64_t r = 0;
  for (; r + R <= rows; r += R)
    tile<R>(x + r * x_stride, x_stride, panel, depth, bias, y + r * y_stride, y_stride, columns);
  if constexpr (R > 1)
    panel_rows<R / 2>(x + r * x_stride, x_stride, panel, depth, bias, y + r * y_stride, y_stride, columns, rows - r);
}

__attribute__((noinline)) void gemm_panels(const float* x, int64_t x_stride, const Panels& m, const float* bias,
                                           float* y, int64_t y_stride, int64_t rows) {
  for (int64_t c = 0; c < m.width(); c += kPanel)
    panel_rows<Vec32::kTileRows>(x, x_stride, m.data() + c * m.depth(), m.depth(), bias ? bias + c : nullptr, y + c,
                                 y_stride, std::min(kPanel, m.width() - c), rows);
}

// Packs [rows, width], rows `stride` apart, as [ceil(width / kBlock)][rows][kBlock], padded with zeros.
template <int64_t kBlock>
TANDEM_TILE void pack_blocks(const float* from, int64_t stride, int64_t rows, int64_t width, LineFloats& blocks) {
  grow(blocks, (width + kBlock - 1) / kBlock * kBlock * rows);
  float* to = blocks.data();
  for (int64_t c = 0; c < width; c += kBlock)
    for (int64_t r = 0; r < rows; ++r, to += kBlock) {
      const float* const row = from + r * stride + c;
      if (c + kBlock <= width) {
        std::memcpy(to, row, kBlock * sizeof(float));
      } else {
        std::copy_n(row, width - c, to);
        std::fill(to + (width - c), to + kBlock, 0.0f);
      }
    }
}

// dw tile [R, 32] of R columns of dy and 32 of x, both packed. The stack holds partial sums of whole shards.
template <int R>
TANDEM_TILE void weight_gradient_tile(const float* dy, const float* x, int64_t rows, std::span<const int> merges,
                                      float* stack, float* dw, int64_t in, int64_t height, int64_t columns,
                                      Write write) {
  Vec32 acc[R];
  for (int r = 0; r < R; ++r) acc[r] = Vec32::zero();
  for (size_t shard = 0; shard < merges.size(); ++shard) {
#pragma GCC unroll 4
    for (int64_t k = 0; k < rows; ++k, dy += R, x += kPanel) {
      const Vec32 w = Vec32::load(x);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) acc[r].multiply_add(dy[r], w);
    }
    for (int join = 0; join < merges[shard]; ++join) {
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
      acc[r].add(write == Write::kAdd ? Vec32::load(dw + r * in) : Vec32::zero());  // of -0 and 0: 0
      acc[r].store(dw + r * in);
    }
    return;
  }
  alignas(64) float full[R * kPanel];
  for (int r = 0; r < R; ++r) acc[r].store(full + r * kPanel);
  for (int64_t r = 0; r < height; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      float& to = dw[r * in + c];
      to = full[r * kPanel + c] + (write == Write::kAdd ? to : 0.0f);
    }
}

__attribute__((noinline)) void weight_gradient_tiles(const float* dy, int64_t dy_stride, const float* x,
                                                     int64_t x_stride, float* dw, int64_t out, int64_t in, int64_t rows,
                                                     std::span<const int> merges, Write write,
                                                     WeightGradientScratch& scratch) {
  constexpr int R = Vec32::kTileRows;
  const int64_t all = rows * static_cast<int64_t>(merges.size());
  pack_blocks<R>(dy, dy_stride, all, out, scratch.dy);
  pack_blocks<kPanel>(x, x_stride, all, in, scratch.x);
  grow(scratch.stack, static_cast<int64_t>(merges.size()) * R * kPanel);
  for (int64_t c = 0; c < in; c += kPanel)
    for (int64_t o = 0; o < out; o += R)
      weight_gradient_tile<R>(scratch.dy.data() + o * all, scratch.x.data() + c * all, rows, merges,
                              scratch.stack.data(), dw + o * in + c, in, std::min<int64_t>(R, out - o),
                              std::min(kPanel, in - c), write);
}
