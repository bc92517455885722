#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tandem {
namespace {

// Scratch memory only grows: resizing down and up again would zero it each time.
float* grow(LineFloats& memory, int64_t floats) {
  if (static_cast<int64_t>(memory.size()) < floats) memory.resize(static_cast<size_t>(floats));
  return memory.data();
}

int64_t panels_of(int64_t columns) { return (columns + kPanel - 1) / kPanel; }

#define TANDEM_TILE inline __attribute__((always_inline))
#define TANDEM_TILE_LAMBDA __attribute__((always_inline))

// `Strip` holds kColumns floats, in registers or in an array. kTileRows of them, one more and a number that multiplies
// it fill the register file.
//
// transpose(): dst[p][r] = src[r][p] for `rows` rows of src, up to 16, and p < k; rows of dst are `apart` floats apart.
// What lies behind a row of dst, up to 16 floats in all, may be overwritten with zeros before the next row is written.
namespace plain {

struct Strip {
  static constexpr int kTileRows = 2, kColumns = 32;
  float v[32];
  static TANDEM_TILE Strip zero() { return {}; }
  static TANDEM_TILE Strip load(const float* p) {
    Strip r;
    std::memcpy(r.v, p, sizeof r.v);
    return r;
  }
  TANDEM_TILE void multiply_add(float a, const Strip& b) {
#if defined(__aarch64__)
    for (int i = 0; i < 32; ++i) v[i] = __builtin_fmaf(a, b.v[i], v[i]);
#else
    for (int i = 0; i < 32; ++i) v[i] += a * b.v[i];
#endif
  }
  TANDEM_TILE void add(const Strip& b) {
    for (int i = 0; i < 32; ++i) v[i] += b.v[i];
  }
  TANDEM_TILE void store(float* p) const { std::memcpy(p, v, sizeof v); }
};

// Blocks of 16 columns: whole cache lines are read.
inline void transpose(const float* src, int64_t stride, int rows, int64_t k, float* dst, int64_t apart) {
  for (int64_t p = 0; p < k; p += 16)
    for (int r = 0; r < rows; ++r)
      for (int64_t i = p; i < std::min(k, p + 16); ++i) dst[i * apart + r] = src[r * stride + i];
}

#include "kernels/cpu/gemm_tiles.h"
//
#include "kernels/cpu/gemm_gradient_tiles.h"

}  // namespace plain

#if defined(__x86_64__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // false warnings of g++ 12 about its own <immintrin.h>
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,fma")
namespace avx512 {

struct Strip {
  static constexpr int kTileRows = 14, kColumns = 32;
  __m512 a, b;
  static TANDEM_TILE Strip zero() { return {_mm512_setzero_ps(), _mm512_setzero_ps()}; }
  static TANDEM_TILE Strip load(const float* p) { return {_mm512_loadu_ps(p), _mm512_loadu_ps(p + 16)}; }
  TANDEM_TILE void multiply_add(float x, const Strip& w) {
    const __m512 s = _mm512_set1_ps(x);
    a = _mm512_fmadd_ps(s, w.a, a);
    b = _mm512_fmadd_ps(s, w.b, b);
  }
  TANDEM_TILE void add(const Strip& o) {
    a = _mm512_add_ps(a, o.a);
    b = _mm512_add_ps(b, o.b);
  }
  TANDEM_TILE void store(float* p) const {
    _mm512_storeu_ps(p, a);
    _mm512_storeu_ps(p + 16, b);
  }
};

TANDEM_TILE __m512 low(__m512 a, __m512 b) {
  return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}
TANDEM_TILE __m512 high(__m512 a, __m512 b) {
  return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}

TANDEM_TILE void transpose_16(const float* src, int64_t stride, int rows, float* dst, int64_t apart) {
  __m512 r[16], t[16];
  for (int i = 0; i < 16; ++i) r[i] = i < rows ? _mm512_loadu_ps(src + i * stride) : _mm512_setzero_ps();
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {  // r[i + j]: in its lane l, column 4 l + j of rows i to i + 3
    r[i] = low(t[i], t[i + 2]);
    r[i + 1] = high(t[i], t[i + 2]);
    r[i + 2] = low(t[i + 1], t[i + 3]);
    r[i + 3] = high(t[i + 1], t[i + 3]);
  }
  for (int j = 0; j < 4; ++j) {
    const __m512 a = _mm512_shuffle_f32x4(r[j], r[4 + j], 0x88), b = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0x88),
                 c = _mm512_shuffle_f32x4(r[j], r[4 + j], 0xdd), d = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0xdd);
    t[j] = _mm512_shuffle_f32x4(a, b, 0x88);
    t[4 + j] = _mm512_shuffle_f32x4(c, d, 0x88);
    t[8 + j] = _mm512_shuffle_f32x4(a, b, 0xdd);
    t[12 + j] = _mm512_shuffle_f32x4(c, d, 0xdd);
  }
  for (int j = 0; j < 16; ++j) _mm512_storeu_ps(dst + j * apart, t[j]);  // in order, as they may overlap
}
__attribute__((noinline)) void transpose(const float* src, int64_t stride, int rows, int64_t k, float* dst,
                                         int64_t apart) {
  int64_t p = 0;
  for (; p + 16 <= k; p += 16) transpose_16(src + p, stride, rows, dst + p * apart, apart);
  plain::transpose(src + p, stride, rows, k - p, dst + p * apart, apart);
}

#include "kernels/cpu/gemm_tiles.h"
//
#include "kernels/cpu/gemm_gradient_tiles.h"

}  // namespace avx512
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {

struct Strip {
  static constexpr int kTileRows = 6, kColumns = 16;
  __m256 a, b;
  static TANDEM_TILE Strip zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static TANDEM_TILE Strip load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  TANDEM_TILE void multiply_add(float x, const Strip& w) {
    const __m256 s = _mm256_set1_ps(x);
    a = _mm256_fmadd_ps(s, w.a, a);
    b = _mm256_fmadd_ps(s, w.b, b);
  }
  TANDEM_TILE void add(const Strip& o) {
    a = _mm256_add_ps(a, o.a);
    b = _mm256_add_ps(b, o.b);
  }
  TANDEM_TILE void store(float* p) const {
    _mm256_storeu_ps(p, a);
    _mm256_storeu_ps(p + 8, b);
  }
};
using plain::transpose;

#include "kernels/cpu/gemm_tiles.h"
//
#include "kernels/cpu/gemm_gradient_tiles.h"

}  // namespace avx2
#pragma GCC pop_options
#pragma GCC diagnostic pop
#endif

}  // namespace

void Panels::shape(int64_t k, int64_t n) {
  k_ = k;
  n_ = n;
  data_.resize(static_cast<size_t>(panels_of(n) * kPanel * k));
}

void Panels::pack(const float* matrix, int64_t k, int64_t n, int64_t stride) {
  shape(k, n);
  if (stride == 0) stride = n;
  for (int64_t c = 0; c < n; c += kPanel) {
    const int64_t columns = std::min(kPanel, n - c);
    float* dst = data_.data() + c * k;
    for (int64_t p = 0; p < k; ++p, dst += kPanel) {
      if (columns == kPanel)
        std::memcpy(dst, matrix + p * stride + c, kPanel * sizeof(float));  // a size that the compiler knows
      else
        std::copy_n(matrix + p * stride + c, columns, dst);
    }
  }
}

void Panels::pack_transposed(const float* matrix, int64_t k, int64_t n, int64_t stride) {
  shape(k, n);
  if (stride == 0) stride = k;
  for (int64_t c = 0; c < n; c += 16) {  // half a panel
    const int rows = static_cast<int>(std::min<int64_t>(16, n - c));
    float* const half = data_.data() + c / kPanel * kPanel * k + c % kPanel;
#if defined(__x86_64__)
    if (best_cpu_variant() == CpuVariant::kAvx512) {
      avx512::transpose(matrix + c * stride, stride, rows, k, half, kPanel);
      continue;
    }
#endif
    plain::transpose(matrix + c * stride, stride, rows, k, half, kPanel);
  }
}

void gemms(const float* x, int64_t x_stride, std::span<const GemmProduct> operands, int64_t m, CpuVariant variant) {
  static thread_local LineFloats memory;
#if defined(__x86_64__)
  if (variant == CpuVariant::kAvx512) return avx512::gemm_panels(x, x_stride, operands, m, memory);
  if (variant == CpuVariant::kAvx2) return avx2::gemm_panels(x, x_stride, operands, m, memory);
#endif
  plain::gemm_panels(x, x_stride, operands, m, memory);
}

void gemm(const float* x, int64_t x_stride, const Panels& w, const float* bias, float* y, int64_t y_stride, int64_t m,
          Write write, CpuVariant variant) {
  const GemmProduct product{.w = w, .bias = bias, .y = y, .y_stride = y_stride, .write = write};
  gemms(x, x_stride, {&product, 1}, m, variant);
}

void weight_gradients(const float* y_grad, int64_t y_grad_stride, std::span<const GradientInput> inputs, int64_t out,
                      int64_t rows_per_shard, std::span<const int> merges, Write write, WeightGradientScratch& scratch,
                      CpuVariant variant) {
#if defined(__x86_64__)
  if (variant == CpuVariant::kAvx512)
    return avx512::gradient_tiles(y_grad, y_grad_stride, inputs, out, rows_per_shard, merges, write, scratch);
  if (variant == CpuVariant::kAvx2)
    return avx2::gradient_tiles(y_grad, y_grad_stride, inputs, out, rows_per_shard, merges, write, scratch);
#endif
  plain::gradient_tiles(y_grad, y_grad_stride, inputs, out, rows_per_shard, merges, write, scratch);
}

void weight_gradient(const float* y_grad, int64_t y_grad_stride, const float* x, int64_t x_stride, float* w_grad,
                     int64_t out, int64_t in, int64_t rows_per_shard, std::span<const int> merges, Write write,
                     WeightGradientScratch& scratch, CpuVariant variant) {
  const GradientInput input{.x = x, .x_stride = x_stride, .in = in, .w_grad = w_grad};
  weight_gradients(y_grad, y_grad_stride, {&input, 1}, out, rows_per_shard, merges, write, scratch, variant);
}

}  // namespace tandem
