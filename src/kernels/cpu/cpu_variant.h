// kernels/cpu/cpu_variant.h -- one loop, compiled for several vector widths, picked at run time.
//
// Every variant gives the same bits (kernels/portable.h), so the choice is about speed alone; gemm.h is the exception,
// where variants with FMA agree and one without does not. It is an argument, with
// the best one as its default, so that a test can run them all on one machine. Explicit calls instead of target_clones:
// those need ifunc, whose resolvers run before a sanitizer is ready, and can't be chosen by a test.
#pragma once

#include <vector>

namespace tandem {

enum class CpuVariant { kPlain, kAvx2, kAvx512 };

#if defined(__x86_64__)
inline bool cpu_can_run(CpuVariant variant) {
  switch (variant) {
    case CpuVariant::kAvx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
    case CpuVariant::kAvx2:
      return __builtin_cpu_supports("avx2");
    case CpuVariant::kPlain:
      break;
  }
  return true;
}
#else
inline bool cpu_can_run(CpuVariant variant) { return variant == CpuVariant::kPlain; }
#endif

inline CpuVariant best_cpu_variant() {
  if (cpu_can_run(CpuVariant::kAvx512)) return CpuVariant::kAvx512;
  if (cpu_can_run(CpuVariant::kAvx2)) return CpuVariant::kAvx2;
  return CpuVariant::kPlain;
}

inline std::vector<CpuVariant> runnable_cpu_variants() {
  std::vector<CpuVariant> variants;
  for (CpuVariant variant : {CpuVariant::kPlain, CpuVariant::kAvx2, CpuVariant::kAvx512})
    if (cpu_can_run(variant)) variants.push_back(variant);
  return variants;
}

}  // namespace tandem
