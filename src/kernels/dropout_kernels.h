// kernels/dropout_kernels.h -- dropout with the mask of fill_dropout_mask(), made where it is used and never stored;
// with an addition after it.
#pragma once

#include <cstdint>

#include "kernels/float_bits.h"
#include "kernels/gpu/kernel_tables.h"
#include "kernels/philox.h"

namespace tandem {

// out[i] = x[i] * mask[i] + residual[i]. Element i of shard s is number i of the stream of the key's shard + s. x is
// rounded to `product` first, as are the mask and the product, so that the same call gives the gradient of x.
struct DropoutCall {
  int shards = 1;
  int64_t shard_elements = 0;
  TypedInput x, residual;  // [shards, shard_elements]; the residual may be absent
  TypedOutput out;
  FloatType product = FloatType::kFloat;
  double drop_probability = 0;
  RandomKey key;
  const RandomKey* key_on_device = nullptr;  // seed, step and shard are read there, the site is key.site
  // Not null: the mask follows the row. Element e of row r, of row_elements each, is number row_ids[r] * row_elements +
  // e of the stream, and the stream is that of step 0 whatever step the key has.
  const int64_t* row_ids = nullptr;  // [shards * shard_elements / row_elements], on the device of x
  int64_t row_elements = 0;
};
struct DropoutKernels {
  static constexpr KernelTableId kId{"dropout", 2};
  static const DropoutKernels& cpu();

  void (*apply)(const DropoutCall&, void* stream);
};

}  // namespace tandem
