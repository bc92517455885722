#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tandem {
namespace {

// Scratch memory only grows: resizing down and up again would zero it each time.
void grow(LineFloats& memory, int64_t floats) {
  if (static_cast<int64_t>(memory.size()) < floats) memory.resize(static_cast<size_t>(floats));
}

#define TANDEM_TILE inline __attribute__((always_inline))

// `Vec32` holds 32 floats: two zmm or four ymm registers, or an array. kTileRows of them fit the register file.
namespace plain {

struct Vec32 {
  static constexpr int kTileRows = 2;
  float v[32];
  static TANDEM_TILE Vec32 zero() { return {}; }
  static TANDEM_TILE Vec32 load(const float* p) {
    Vec32 r;
    std::memcpy(r.v, p, sizeof r.v);
    return r;
  }
  TANDEM_TILE void multiply_add(float a, const Vec32& b) {
#if defined(__aarch64__)
    for (int i = 0; i < 32; ++i) v[i] = __builtin_fmaf(a, b.v[i], v[i]);
#else
    for (int i = 0; i < 32; ++i) v[i] += a * b.v[i];
#endif
  }
  TANDEM_TILE void add(const Vec32& b) {
    for (int i = 0; i < 32; ++i) v[i] += b.v[i];
  }
  TANDEM_TILE void store(float* p) const { std::memcpy(p, v, sizeof v); }
};

#include "kernels/cpu/gemm_tiles.h"

}  // namespace plain

#if defined(__x86_64__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // a false warning of g++ 12 about its own <immintrin.h>
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,fma")
namespace avx512 {

struct Vec32 {
  static constexpr int kTileRows = 8;
  __m512 a, b;
  static TANDEM_TILE Vec32 zero() { return {_mm512_setzero_ps(), _mm512_setzero_ps()}; }
  static TANDEM_TILE Vec32 load(const float* p) { return {_mm512_loadu_ps(p), _mm512_loadu_ps(p + 16)}; }
  TANDEM_TILE void multiply_add(float x, const Vec32& w) {
    const __m512 s = _mm512_set1_ps(x);
    a = _mm512_fmadd_ps(s, w.a, a);
    b = _mm512_fmadd_ps(s, w.b, b);
  }
  TANDEM_TILE void add(const Vec32& o) {
    a = _mm512_add_ps(a, o.a);
    b = _mm512_add_ps(b, o.b);
  }
  TANDEM_TILE void store(float* p) const {
    _mm512_storeu_ps(p, a);
    _mm512_storeu_ps(p + 16, b);
  }
};

#include "kernels/cpu/gemm_tiles.h"

TANDEM_TILE __m512 low(__m512 a, __m512 b) {
  return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}
TANDEM_TILE __m512 high(__m512 a, __m512 b) {
  return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}

// dst[j][i] = src[i][j], 16 x 16; rows of src are `stride` floats apart, rows of dst kPanel.
__attribute__((noinline)) void transpose_16x16(const float* src, int64_t stride, float* dst) {
  __m512 r[16], t[16];
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_ps(src + i * stride);
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
    _mm512_storeu_ps(dst + j * kPanel, _mm512_shuffle_f32x4(a, b, 0x88));
    _mm512_storeu_ps(dst + (4 + j) * kPanel, _mm512_shuffle_f32x4(c, d, 0x88));
    _mm512_storeu_ps(dst + (8 + j) * kPanel, _mm512_shuffle_f32x4(a, b, 0xdd));
    _mm512_storeu_ps(dst + (12 + j) * kPanel, _mm512_shuffle_f32x4(c, d, 0xdd));
  }
}

}  // namespace avx512
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {

struct Vec32 {
  static constexpr int kTileRows = 2;
  __m256 v[4];
  static TANDEM_TILE Vec32 zero() {
    const __m256 z = _mm256_setzero_ps();
    return {{z, z, z, z}};
  }
  static TANDEM_TILE Vec32 load(const float* p) {
    return {{_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8), _mm256_loadu_ps(p + 16), _mm256_loadu_ps(p + 24)}};
  }
  TANDEM_TILE void multiply_add(float x, const Vec32& w) {
    const __m256 s = _mm256_set1_ps(x);
    for (int i = 0; i < 4; ++i) v[i] = _mm256_fmadd_ps(s, w.v[i], v[i]);
  }
  TANDEM_TILE void add(const Vec32& o) {
    for (int i = 0; i < 4; ++i) v[i] = _mm256_add_ps(v[i], o.v[i]);
  }
  TANDEM_TILE void store(float* p) const {
    for (int i = 0; i < 4; ++i) _mm256_storeu_ps(p + 8 * i, v[i]);
  }
};

#include "kernels/cpu/gemm_tiles.h"

}  // namespace avx2
#pragma GCC pop_options
#pragma GCC diagnostic pop
#endif

}  // namespace

void Panels::shape(int64_t k, int64_t n) {
  k_ = k;
  n_ = n;
  data_.resize(static_cast<size_t>((n + kPanel - 1) / kPanel * kPanel * k));
}

void Panels::pack(const float* matrix, int64_t k, int64_t n) {
  shape(k, n);
  for (int64_t c = 0; c < n; c += kPanel) {
    const int64_t columns = std::min(kPanel, n - c);
    float* dst = data_.data() + c * k;
    for (int64_t p = 0; p < k; ++p, dst += kPanel) {
      if (columns == kPanel)
        std::memcpy(dst, matrix + p * n + c, kPanel * sizeof(float));  // a size that the compiler knows
      else
        std::copy_n(matrix + p * n + c, columns, dst);
    }
  }
}

void Panels::pack_transposed(const float* matrix, int64_t k, int64_t n) {
  shape(k, n);
  constexpr int64_t kBlock = 16;  // blocks of 16 x 32: whole cache lines are read and written
  [[maybe_unused]] const bool use_avx512 = best_cpu_variant() == CpuVariant::kAvx512;
  for (int64_t c = 0; c < n; c += kPanel) {
    const int64_t columns = std::min(kPanel, n - c);
    float* const panel = data_.data() + c * k;
    for (int64_t p = 0; p < k; p += kBlock) {
      const int64_t last = std::min(k, p + kBlock);
#if defined(__x86_64__)
      if (use_avx512 && columns == kPanel && last - p == kBlock) {
        for (const int64_t offset : {0, 16})
          avx512::transpose_16x16(matrix + (c + offset) * k + p, k, panel + p * kPanel + offset);
        continue;
      }
#endif
      for (int64_t j = 0; j < columns; ++j)
        for (int64_t i = p; i < last; ++i) panel[i * kPanel + j] = matrix[(c + j) * k + i];
    }
  }
}

void gemm(const float* x, int64_t x_stride, const Panels& w, const float* bias, float* y, int64_t y_stride, int64_t m,
          CpuVariant variant) {
#if defined(__x86_64__)
  if (variant == CpuVariant::kAvx512) return avx512::gemm_panels(x, x_stride, w, bias, y, y_stride, m);
  if (variant == CpuVariant::kAvx2) return avx2::gemm_panels(x, x_stride, w, bias, y, y_stride, m);
#endif
  plain::gemm_panels(x, x_stride, w, bias, y, y_stride, m);
}

void weight_gradient(const float* y_grad, int64_t y_grad_stride, const float* x, int64_t x_stride, float* w_grad,
                     int64_t out, int64_t in, int64_t rows_per_shard, std::span<const int> merges, Write write,
                     WeightGradientScratch& scratch, CpuVariant variant) {
#if defined(__x86_64__)
  if (variant == CpuVariant::kAvx512)
    return avx512::weight_gradient_tiles(y_grad, y_grad_stride, x, x_stride, w_grad, out, in, rows_per_shard, merges,
                                         write, scratch);
  if (variant == CpuVariant::kAvx2)
    return avx2::weight_gradient_tiles(y_grad, y_grad_stride, x, x_stride, w_grad, out, in, rows_per_shard, merges,
                                       write, scratch);
#endif
  plain::weight_gradient_tiles(y_grad, y_grad_stride, x, x_stride, w_grad, out, in, rows_per_shard, merges, write,
                               scratch);
}

}  // namespace tandem
