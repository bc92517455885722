// kernels/cpu/norms.h -- the norm of a buffer and the search for NaN and Inf in it.
#pragma once

#include <cstdint>

#include "kernels/cpu/cpu_variant.h"

namespace tandem {

// The order of sum_of_squares, the same on every machine, is fixed by these: inside a block, lane l adds the squares of
// elements l, l + 32, l + 64, ... in double (a float's square is exact there); the 32 lanes are added pairwise (l and l
// + 16, then + 8, ...); blocks are added in order within a group of 256, and groups in order.
inline constexpr int64_t kNormBlock = 4096;
inline constexpr int kNormLanes = 32;
inline constexpr int64_t kNormBlocksPerGroup = 256;

double sum_of_squares(const float* x, int64_t n, CpuVariant variant = best_cpu_variant());

// By the exponent's bits, so it holds under any compiler flag. Stops at the first block with a NaN or an Inf.
bool all_finite(const float* x, int64_t n, CpuVariant variant = best_cpu_variant());
// The first index with a NaN or an Inf, or -1.
int64_t first_nonfinite(const float* x, int64_t n, CpuVariant variant = best_cpu_variant());

}  // namespace tandem
