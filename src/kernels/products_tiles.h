// kernels/products_tiles.h -- the loops of products.cc over tiles of R x 32 sums that stay in registers.
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

// sum tile [R, 32] += over rows: R columns of dy, 32 of x.
template <int R>
TANDEM_TILE void outer_tile(const float* dy, int64_t dy_stride, const float* x, int64_t x_stride, float* sum,
                            int64_t in, int64_t columns, int64_t rows) {
  Pair sums[R];
  alignas(64) float full[kPanel] = {};
  for (int r = 0; r < R; ++r) sums[r] = Pair::zero();
  for (int64_t k = 0; k < rows; ++k) {
    Pair w;
    if (columns == kPanel) {
      w = Pair::load(x + k * x_stride);
    } else {
      for (int64_t c = 0; c < columns; ++c) full[c] = x[k * x_stride + c];
      w = Pair::load(full);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sums[r].add_product(dy[k * dy_stride + r], w);
  }
  for (int r = 0; r < R; ++r) {
    float* const to = sum + r * in;
    if (columns == kPanel) {
      sums[r].add(Pair::load(to));
      sums[r].store(to);
      continue;
    }
    sums[r].store(full);
    for (int64_t c = 0; c < columns; ++c) to[c] += full[c];
  }
}

template <int R>
TANDEM_TILE void outer_columns(const float* dy, int64_t dy_stride, const float* x, int64_t x_stride, float* sum,
                               int64_t out, int64_t in, int64_t columns, int64_t rows) {
  int64_t o = 0;
  for (; o + R <= out; o += R) outer_tile<R>(dy + o, dy_stride, x, x_stride, sum + o * in, in, columns, rows);
  if constexpr (R > 1) outer_columns<R / 2>(dy + o, dy_stride, x, x_stride, sum + o * in, out - o, in, columns, rows);
}

__attribute__((noinline)) void add_outer_of(const float* dy, int64_t dy_stride, const float* x, int64_t x_stride,
                                            float* sum, int64_t out, int64_t in, int64_t rows) {
  for (int64_t c = 0; c < in; c += kPanel)
    outer_columns<Pair::kTileRows>(dy, dy_stride, x + c, x_stride, sum + c, out, in, std::min(kPanel, in - c), rows);
}
