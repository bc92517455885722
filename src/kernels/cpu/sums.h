// kernels/cpu/sums.h -- sums of whole arrays, element by element, in the order given.
//
// Float addition depends on order, so the order is the caller's and is kept. A sum whose order is fixed has the same
// bits on any number of workers: that is what the project calls an exact sum. (Integer sums need no order.)
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/cpu_variant.h"

namespace tandem {

// out = ((in[0] + in[1]) + in[2]) + ...; count >= 1. `out` may be inputs[0] (the very same array); it overlaps no
// other.
void add_in_order(float* out, const float* const* inputs, int count, int64_t n,
                  CpuVariant variant = best_cpu_variant());
// out = the sum of the inputs along a tree: `merges` has one entry per input, the number of partial sums on the stack
// that are merged after it, as left + right (SumTree::merges).
void add_along_tree(float* out, std::span<const float* const> inputs, std::span<const int> merges, int64_t n,
                    CpuVariant variant = best_cpu_variant());
// y = y + a * x, two roundings. x may be y.
void scale_add(float* y, float a, const float* x, int64_t n, CpuVariant variant = best_cpu_variant());
// x = a * x.
void scale(float* x, float a, int64_t n, CpuVariant variant = best_cpu_variant());
// target = target + tau * (p - target): Polyak averaging of a target network, or an average of weights.
void soft_update(float* target, const float* p, float tau, int64_t n, CpuVariant variant = best_cpu_variant());

}  // namespace tandem
