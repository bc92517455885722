#include "kernels/cpu/linear.h"

#include "kernels/cpu/cpu_dispatch.h"

namespace tandem {
namespace {

// kRows x kColumns accumulators stay in registers over the loop on `in`.
constexpr int kRows = 4, kColumns = 32;

template <int rows, int columns>
__attribute__((always_inline)) inline void tile(const float* x, const float* w, const float* bias, float* y, int64_t in,
                                                int64_t out) {
  float acc[rows][columns];
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) acc[r][c] = bias[c];
  for (int64_t i = 0; i < in; ++i) {
    const float* const line = w + i * out;
    for (int r = 0; r < rows; ++r) {
      const float a = x[r * in + i];
      for (int c = 0; c < columns; ++c) acc[r][c] += a * line[c];
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) y[r * out + c] = acc[r][c];
}

template <int rows>
__attribute__((always_inline)) inline void band(const float* x, const float* w, const float* bias, float* y, int64_t in,
                                                int64_t out) {
  int64_t c = 0;
  for (; c + kColumns <= out; c += kColumns) tile<rows, kColumns>(x, w + c, bias + c, y + c, in, out);
  for (; c < out; ++c) tile<rows, 1>(x, w + c, bias + c, y + c, in, out);
}

}  // namespace

void linear(const float* x, const float* w, const float* bias, float* y, int64_t rows, int64_t in, int64_t out,
            CpuVariant variant) {
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    int64_t r = 0;
    for (; r + kRows <= rows; r += kRows) band<kRows>(x + r * in, w, bias, y + r * out, in, out);
    for (; r < rows; ++r) band<1>(x + r * in, w, bias, y + r * out, in, out);
  });
}

}  // namespace tandem
