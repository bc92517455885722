// kernels/gpu/block_choice.h -- how launches are cut into blocks: what the host may say about it. No CUDA needed.
#pragma once

#include <cstdint>

#include "kernels/rounding.h"

namespace tandem {

// Every choice gives the same bits; the precision of the operands does not.
struct BlockChoice {
  Precision precision = Precision::kFp32;
  // Of a GEMM: 1, 2 or 4 tiles to a block, as far as they fit (gemm_shape.h). Of a fused MLP: 16, 24 or 40 rows to a
  // block, where they fit (fused_mlp.h). Both 0: by size and GPU.
  int32_t tiles = 0, rows = 0;
};

inline bool is_16bit(Precision precision) { return precision == Precision::kBf16 || precision == Precision::kFp16; }

inline constexpr int kPackedFragmentBytes = 16;  // eight weights (packed_weights.h)

}  // namespace tandem
