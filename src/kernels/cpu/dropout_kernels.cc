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

// `count` elements from `first` on, whose numbers in the stream begin at `number`.
void dropout_run(const DropoutCall& call, const RandomKey& key, int64_t first, int64_t count, int64_t number) {
  alignas(64) float mask[kPiece];
  for (int64_t done = 0; done < count; done += kPiece) {
    const int piece = static_cast<int>(std::min<int64_t>(kPiece, count - done));
    fill_dropout_mask(mask, piece, key, static_cast<uint64_t>(number + done), call.drop_probability);
    dropout_piece(call, first + done, mask, piece);
  }
}

void apply_dropout(const DropoutCall& call, void*) {
  if (call.shard_elements == 0) return;
  RandomKey key = call.key_on_device ? *call.key_on_device : call.key;
  key.site = call.key.site;
  if (call.row_ids) key.step = 0;
  const uint32_t first_shard = key.shard;
  const int64_t run = call.row_ids ? call.row_elements : call.shard_elements;  // elements with neighbouring numbers
  for (int shard = 0; shard < call.shards; ++shard) {
    key.shard = first_shard + static_cast<uint32_t>(shard);
    const int64_t begin = shard * call.shard_elements, end = begin + call.shard_elements;
    for (int64_t first = begin; first < end; first += run)
      dropout_run(call, key, first, run, call.row_ids ? call.row_ids[first / run] * run : 0);
  }
}

}  // namespace

const DropoutKernels& DropoutKernels::cpu() {
  static const DropoutKernels kernels{apply_dropout};
  return kernels;
}

}  // namespace tandem
