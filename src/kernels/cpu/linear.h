// kernels/cpu/linear.h -- a linear layer for inference without libtorch.
//
// Each output is bias + x[0] w[0] + x[1] w[1] + ..., added in this order, so every variant and every number of rows
// gives the same bits: an answer does not depend on what else is in the batch.
#pragma once

#include <cstdint>

#include "kernels/cpu/cpu_variant.h"

namespace tandem {

// y [rows, out] = x [rows, in] * w [in, out] + bias [out]; w is the transpose of what libtorch keeps.
void linear(const float* x, const float* w, const float* bias, float* y, int64_t rows, int64_t in, int64_t out,
            CpuVariant variant = best_cpu_variant());

}  // namespace tandem
