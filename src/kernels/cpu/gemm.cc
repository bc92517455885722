#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tandem {
namespace {

// Memory to work in only grows: a vector would fill with zeros what it had shrunk from.
void grow(LineFloats& memory, int64_t floats) {
  if (static_cast<int64_t>(memory.size()) < floats) memory.resize(static_cast<size_t>(floats));
}

#define TANDEM_TILE inline __attribute__((always_inline))

// `Pair` is two vectors of 16 numbers, or what stands for them; kTileRows of them fit the registers.
namespace plain {

struct Pair {
  static constexpr int kTileRows = 2;
  float v[32];
  static TANDEM_TILE Pair zero() { return {}; }
  static TANDEM_TILE Pair load(const float* p) {
    Pair r;
    std::memcpy(r.v, p, sizeof r.v);
    return r;
  }
  TANDEM_TILE void add_product(float a, const Pair& b) {
#if defined(__aarch64__)
    for (int i = 0; i < 32; ++i) v[i] = __builtin_fmaf(a, b.v[i], v[i]);
#else
    for (int i = 0; i < 32; ++i) v[i] += a * b.v[i];
#endif
  }
  TANDEM_TILE void add(const Pair& b) {
    for (int i = 0; i < 32; ++i) v[i] += b.v[i];
  }
  TANDEM_TILE void store(float* p) const { std::memcpy(p, v, sizeof v); }
};

#include "kernels/cpu/gemm_tiles.h"

}  // namespace plain

#if defined(__x86_64__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // g++ 12 says it of its own <immintrin.h>
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,fma")
namespace avx512 {

struct Pair {
  static constexpr int kTileRows = 8;
  __m512 a, b;
  static TANDEM_TILE Pair zero() { return {_mm512_setzero_ps(), _mm512_setzero_ps()}; }
  static TANDEM_TILE Pair load(const float* p) { return {_mm512_loadu_ps(p), _mm512_loadu_ps(p + 16)}; }
  TANDEM_TILE void add_product(float x, const Pair& w) {
    const __m512 s = _mm512_set1_ps(x);
    a = _mm512_fmadd_ps(s, w.a, a);
    b = _mm512_fmadd_ps(s, w.b, b);
  }
  TANDEM_TILE void add(const Pair& o) {
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

// to[j][i] = from[i][j], 16 x 16; rows of `to` lie a panel's width apart.
__attribute__((noinline)) void turn_block(const float* from, int64_t stride, float* to) {
  __m512 r[16], t[16];
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_ps(from + i * stride);
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
    _mm512_storeu_ps(to + j * kPanel, _mm512_shuffle_f32x4(a, b, 0x88));
    _mm512_storeu_ps(to + (4 + j) * kPanel, _mm512_shuffle_f32x4(c, d, 0x88));
    _mm512_storeu_ps(to + (8 + j) * kPanel, _mm512_shuffle_f32x4(a, b, 0xdd));
    _mm512_storeu_ps(to + (12 + j) * kPanel, _mm512_shuffle_f32x4(c, d, 0xdd));
  }
}

}  // namespace avx512
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {

struct Pair {
  static constexpr int kTileRows = 2;
  __m256 v[4];
  static TANDEM_TILE Pair zero() {
    const __m256 z = _mm256_setzero_ps();
    return {{z, z, z, z}};
  }
  static TANDEM_TILE Pair load(const float* p) {
    return {{_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8), _mm256_loadu_ps(p + 16), _mm256_loadu_ps(p + 24)}};
  }
  TANDEM_TILE void add_product(float x, const Pair& w) {
    const __m256 s = _mm256_set1_ps(x);
    for (int i = 0; i < 4; ++i) v[i] = _mm256_fmadd_ps(s, w.v[i], v[i]);
  }
  TANDEM_TILE void add(const Pair& o) {
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

void Panels::shape(int64_t depth, int64_t width) {
  depth_ = depth;
  width_ = width;
  data_.resize(static_cast<size_t>((width + kPanel - 1) / kPanel * kPanel * depth));
}

void Panels::pack(const float* matrix, int64_t depth, int64_t width) {
  shape(depth, width);
  for (int64_t c = 0; c < width; c += kPanel) {
    const int64_t columns = std::min(kPanel, width - c);
    float* to = data_.data() + c * depth;
    for (int64_t k = 0; k < depth; ++k, to += kPanel) {
      if (columns == kPanel)
        std::memcpy(to, matrix + k * width + c, kPanel * sizeof(float));  // a size that the compiler knows
      else
        std::copy_n(matrix + k * width + c, columns, to);
    }
  }
}

void Panels::pack_transposed(const float* matrix, int64_t depth, int64_t width) {
  shape(depth, width);
  constexpr int64_t kBlock = 16;  // of 16 x 32: read and written whole lines
  [[maybe_unused]] const bool vectors = best_cpu_variant() == CpuVariant::kAvx512;
  for (int64_t c = 0; c < width; c += kPanel) {
    const int64_t columns = std::min(kPanel, width - c);
    float* const panel = data_.data() + c * depth;
    for (int64_t k = 0; k < depth; k += kBlock) {
      const int64_t last = std::min(depth, k + kBlock);
#if defined(__x86_64__)
      if (vectors && columns == kPanel && last - k == kBlock) {
        for (const int64_t half : {0, 16})
          avx512::turn_block(matrix + (c + half) * depth + k, depth, panel + k * kPanel + half);
        continue;
      }
#endif
      for (int64_t j = 0; j < columns; ++j)
        for (int64_t i = k; i < last; ++i) panel[i * kPanel + j] = matrix[(c + j) * depth + i];
    }
  }
}

void product(const float* x, int64_t x_stride, const Panels& m, const float* bias, float* y, int64_t y_stride,
             int64_t rows, CpuVariant variant) {
#if defined(__x86_64__)
  if (variant == CpuVariant::kAvx512) return avx512::product_of(x, x_stride, m, bias, y, y_stride, rows);
  if (variant == CpuVariant::kAvx2) return avx2::product_of(x, x_stride, m, bias, y, y_stride, rows);
#endif
  plain::product_of(x, x_stride, m, bias, y, y_stride, rows);
}

void outer_sums(const float* dy, int64_t dy_stride, const float* x, int64_t x_stride, float* sum, int64_t out,
                int64_t in, int64_t rows, std::span<const int> merges, Write write, OuterRoom& room,
                CpuVariant variant) {
#if defined(__x86_64__)
  if (variant == CpuVariant::kAvx512)
    return avx512::outer_sums_of(dy, dy_stride, x, x_stride, sum, out, in, rows, merges, write, room);
  if (variant == CpuVariant::kAvx2)
    return avx2::outer_sums_of(dy, dy_stride, x, x_stride, sum, out, in, rows, merges, write, room);
#endif
  plain::outer_sums_of(dy, dy_stride, x, x_stride, sum, out, in, rows, merges, write, room);
}

}  // namespace tandem
