// kernels/cpu/random_fill.h -- arrays of random numbers: out[i] is the number of philox.h at index first_index + i.
//
// However an array is divided into calls, the numbers are the same, as are those of all CPU variants and CUDA twins.
#pragma once

#include <cstdint>

#include "kernels/cpu/cpu_variant.h"
#include "kernels/philox.h"

namespace tandem {

void fill_u32(uint32_t* out, int64_t n, const RandomKey& key, uint64_t first_index = 0,
              CpuVariant variant = best_cpu_variant());
// [low, high): low + (high - low) * uniform, rounded; `high` itself can appear where the span is far below |low|.
void fill_uniform(float* out, int64_t n, const RandomKey& key, uint64_t first_index = 0, float low = 0.0f,
                  float high = 1.0f, CpuVariant variant = best_cpu_variant());
// mean + deviation * normal.
void fill_normal(float* out, int64_t n, const RandomKey& key, uint64_t first_index = 0, float mean = 0.0f,
                 float deviation = 1.0f, CpuVariant variant = best_cpu_variant());
// kept_value with probability keep_probability (in steps of 2^-32; 0 and 1 are exact), else 0.
void fill_bernoulli_mask(float* out, int64_t n, const RandomKey& key, uint64_t first_index, double keep_probability,
                         float kept_value = 1.0f, CpuVariant variant = best_cpu_variant());
// The mask to multiply with in training: 1 / (1 - drop_probability), or 0. All zero where drop_probability is 1.
void fill_dropout_mask(float* out, int64_t n, const RandomKey& key, uint64_t first_index, double drop_probability,
                       CpuVariant variant = best_cpu_variant());

}  // namespace tandem
