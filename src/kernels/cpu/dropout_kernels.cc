#include "kernels/dropout_kernels.h"

#include <algorithm>

#include "kernels/cpu/random_fill.h"

namespace tandem {
namespace {

constexpr int kPiece = 1024;  // elements whose mask is made at once

void dropout_piece(const DropoutCall& call, int64_t first, const float* mask, int count) {
  if (call.x.type == FloatType::kFloat && call.product == FloatType::kFloat && call.out.type == FloatType::kFloat &&
      (!call.residual.data || call.residual.type == FloatType::kFloat)) {
    const float* const x = static_cast<const float*>(call.x.data) + first;
    float* const out = static_cast<float*>(call.out.data) + first;
    for (int i = 0; i < count; ++i) out[i] = x[i] * mask[i];
    if (!call.residual.data) return;
    const float* const residual = static_cast<const float*>(call.residual.data) + first;
    for (int i = 0; i < count; ++i) out[i] = out[i] + residual[i];
    return;
  }
  for (int i = 0; i < count; ++i) {
    const float x = round_to(call.product, load_float(call.x.data, call.x.type, first + i));
    const float product = round_to(call.product, x * round_to(call.product, mask[i]));
    const float added =
        call.residual.data ? product + load_float(call.residual.data, call.residual.type, first + i) : product;
    store_float(call.out.data, call.out.type, first + i, added);
  }
}

void apply_dropout(const DropoutCall& call, void*) {
  RandomKey key = call.key_on_device ? *call.key_on_device : call.key;
  key.site = call.key.site;
  const uint32_t first_shard = key.shard;
  alignas(64) float mask[kPiece];
  for (int shard = 0; shard < call.shards; ++shard) {
    key.shard = first_shard + static_cast<uint32_t>(shard);
    for (int64_t done = 0; done < call.shard_elements; done += kPiece) {
      const int count = static_cast<int>(std::min<int64_t>(kPiece, call.shard_elements - done));
      fill_dropout_mask(mask, count, key, static_cast<uint64_t>(done), call.drop_probability);
      dropout_piece(call, shard * call.shard_elements + done, mask, count);
    }
  }
}

}  // namespace

const DropoutKernels& DropoutKernels::cpu() {
  static const DropoutKernels kernels{apply_dropout};
  return kernels;
}

}  // namespace tandem
