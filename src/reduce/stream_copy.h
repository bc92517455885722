// reduce/stream_copy.h -- a copy of a large vector that goes past the cache.
//
// Whoever reads it next is another core, or this one when the cache has long been through something else. Writing past
// the cache saves reading the old lines first: 2.5 instead of 3.8 ms for 25 MB on a Xeon (bench/combine.cc).
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace tandem {

constexpr int64_t kStreamFloats = 1 << 19;  // from here on a vector counts as large: more than a core's own cache

inline void stream_copy(float* to, const float* from, int64_t n) {
#if defined(__x86_64__)
  if (reinterpret_cast<uintptr_t>(to) % 16 == 0) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {  // a line at a time
      const __m128 a = _mm_loadu_ps(from + i), b = _mm_loadu_ps(from + i + 4);
      const __m128 c = _mm_loadu_ps(from + i + 8), d = _mm_loadu_ps(from + i + 12);
      _mm_stream_ps(to + i, a);
      _mm_stream_ps(to + i + 4, b);
      _mm_stream_ps(to + i + 8, c);
      _mm_stream_ps(to + i + 12, d);
    }
    for (; i < n; ++i) to[i] = from[i];
    _mm_sfence();  // such stores are not ordered otherwise, not even by a release
    return;
  }
#endif
  if (n > 0) std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
}

}  // namespace tandem
