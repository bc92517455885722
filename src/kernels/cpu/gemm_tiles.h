// kernels/cpu/gemm_tiles.h -- the loops of products.cc over tiles of R x 32 sums that stay in registers.
//
// Included once for each variant, inside its namespace and with its instructions switched on: a function that is
// compiled for other instructions could not take the vectors' operations in.

// y tile [R, 32] = x [R, depth] times one panel.
template <int R>
TANDEM_TILE void tile(const float* x, int64_t x_stride, const float* panel, int64_t depth, const float* bias, float* y,
                      int64_t y_stride, int64_t columns) {
  Pair sums[R];
  for (int r = 0; r < R; ++r) sums[r] = Pair::zero();
  for (int64_t k = 0; k < depth; ++k) {
    const Pair w = Pair::load(panel + k * kPanel);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sums[r].add_product(x[r * x_stride + k], w);
  }
  alignas(64) float full[kPanel];
  for (int r = 0; r < R; ++r) {
    if (columns == kPanel) {
      if (bias) sums[r].add(Pair::load(bias));
      sums[r].store(y + r * y_stride);
      continue;
    }
    sums[r].store(full);
    for (int64_t c = 0; c < columns; ++c) y[r * y_stride + c] = bias ? full[c] + bias[c] : full[c];
  }
}

template <int R>
TANDEM_TILE void rows_of_panel(const float* x, int64_t x_stride, const float* panel, int64_t depth, const float* bias,
                               float* y, int64_t y_stride, int64_t columns, int64_t rows) {
  int64_t r = 0;
  for (; r + R <= rows; r += R)
    tile<R>(x + r * x_stride, x_stride, panel, depth, bias, y + r * y_stride, y_stride, columns);
  if constexpr (R > 1)
    rows_of_panel<R / 2>(x + r * x_stride, x_stride, panel, depth, bias, y + r * y_stride, y_stride, columns, rows - r);
}

__attribute__((noinline)) void product_of(const float* x, int64_t x_stride, const Panels& m, const float* bias,
                                          float* y, int64_t y_stride, int64_t rows) {
  for (int64_t c = 0; c < m.width(); c += kPanel)
    rows_of_panel<Pair::kTileRows>(x, x_stride, m.data() + c * m.depth(), m.depth(), bias ? bias + c : nullptr, y + c,
                                   y_stride, std::min(kPanel, m.width() - c), rows);
}

// [rows, width], `stride` apart, as [ceil(width / kBlock)][rows][kBlock], filled up with zeros.
template <int64_t kBlock>
TANDEM_TILE void to_blocks(const float* from, int64_t stride, int64_t rows, int64_t width, LineFloats& blocks) {
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

// sum tile [R, 32] of R columns of dy and 32 of x, which lie in blocks.
template <int R>
TANDEM_TILE void outer_tile(const float* dy, const float* x, int64_t rows, std::span<const int> merges, float* waiting,
                            float* sum, int64_t in, int64_t height, int64_t columns, Write write) {
  Pair sums[R];
  for (int r = 0; r < R; ++r) sums[r] = Pair::zero();
  for (size_t piece = 0; piece < merges.size(); ++piece) {
#pragma GCC unroll 4
    for (int64_t k = 0; k < rows; ++k, dy += R, x += kPanel) {
      const Pair w = Pair::load(x);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sums[r].add_product(dy[r], w);
    }
    for (int join = 0; join < merges[piece]; ++join) {
      waiting -= R * kPanel;
      for (int r = 0; r < R; ++r) sums[r].add(Pair::load(waiting + r * kPanel));
    }
    if (piece + 1 == merges.size()) break;
    for (int r = 0; r < R; ++r) {
      sums[r].store(waiting + r * kPanel);
      sums[r] = Pair::zero();
    }
    waiting += R * kPanel;
  }
  if (height == R && columns == kPanel) {
    for (int r = 0; r < R; ++r) {
      sums[r].add(write == Write::kAdd ? Pair::load(sum + r * in) : Pair::zero());  // of -0 and 0: 0
      sums[r].store(sum + r * in);
    }
    return;
  }
  alignas(64) float full[R * kPanel];
  for (int r = 0; r < R; ++r) sums[r].store(full + r * kPanel);
  for (int64_t r = 0; r < height; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      float& to = sum[r * in + c];
      to = full[r * kPanel + c] + (write == Write::kAdd ? to : 0.0f);
    }
}

__attribute__((noinline)) void outer_sums_of(const float* dy, int64_t dy_stride, const float* x, int64_t x_stride,
                                             float* sum, int64_t out, int64_t in, int64_t rows,
                                             std::span<const int> merges, Write write, OuterRoom& room) {
  constexpr int R = Pair::kTileRows;
  const int64_t all = rows * static_cast<int64_t>(merges.size());
  to_blocks<R>(dy, dy_stride, all, out, room.dy);
  to_blocks<kPanel>(x, x_stride, all, in, room.x);
  grow(room.waiting, static_cast<int64_t>(merges.size()) * R * kPanel);
  for (int64_t c = 0; c < in; c += kPanel)
    for (int64_t o = 0; o < out; o += R)
      outer_tile<R>(room.dy.data() + o * all, room.x.data() + c * all, rows, merges, room.waiting.data(),
                    sum + o * in + c, in, std::min<int64_t>(R, out - o), std::min(kPanel, in - c), write);
}
