// kernels/float_type.h -- what a kernel reads or writes; sums and statistics are float, always.
#pragma once

namespace tandem {

enum class FloatType { kFloat, kBFloat16, kHalf };

}  // namespace tandem
