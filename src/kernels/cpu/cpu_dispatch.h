// kernels/cpu/cpu_dispatch.h -- runs a loop with the chosen instruction set. For the .cc files of this folder only.
//
// The loop is an always-inlined lambda, so it is compiled anew inside each of the functions below, with their
// instructions.
#pragma once

#include "kernels/cpu/cpu_variant.h"

#define TANDEM_INLINE_LAMBDA __attribute__((always_inline))

// Before a loop without dependences between iterations (arrays are identical or disjoint, never overlapping).
#if defined(__clang__)
#define TANDEM_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define TANDEM_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace tandem {

#if defined(__x86_64__)
template <typename Body>
__attribute__((target("avx512f,avx512dq,avx512vl,avx512bw"), noinline)) auto run_avx512(const Body& body) {
  return body();
}
template <typename Body>
__attribute__((target("avx2"), noinline)) auto run_avx2(const Body& body) {
  return body();
}
#endif

template <typename Body>
auto run_variant(CpuVariant variant, const Body& body) {
#if defined(__x86_64__)
  if (variant == CpuVariant::kAvx512) return run_avx512(body);
  if (variant == CpuVariant::kAvx2) return run_avx2(body);
#endif
  return body();
}

// As run_variant(), with FMA among the instructions: without it every FMA would be a call. Same bits either way.
#if defined(__x86_64__)
template <typename Body>
__attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,fma"), noinline)) void run_avx512_fma(const Body& body) {
  body();
}
template <typename Body>
__attribute__((target("avx2,fma"), noinline)) void run_avx2_fma(const Body& body) {
  body();
}
#endif
template <typename Body>
void run_with_fma(const Body& body) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("fma")) {
    if (best_cpu_variant() == CpuVariant::kAvx512) return run_avx512_fma(body);
    if (best_cpu_variant() == CpuVariant::kAvx2) return run_avx2_fma(body);
  }
#endif
  body();
}

}  // namespace tandem
