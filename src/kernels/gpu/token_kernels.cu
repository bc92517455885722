// kernels/gpu/token_kernels.cu -- CUDA twins of embeddings and dropout (kernels/token_kernels.h, dropout_kernels.h).
#include "kernels/dropout_kernels.h"
#include "kernels/gpu/launch.h"
#include "kernels/gpu/layer_kernels.h"
#include "kernels/gpu/typed_vectors.h"
#include "kernels/random_fill_math.h"
#include "kernels/token_kernels.h"

namespace tandem::cuda {
namespace {

// ---- embedding ----

// One item: four neighbouring columns of a row (one, where rows are not aligned).
template <int kColumns>
__global__ void embedding_rows(const EmbeddingForward call) {
  const int64_t per_row = call.width / kColumns;
  for (int64_t i = first_item(); i < call.rows * per_row; i += item_stride()) {
    const int64_t row = i / per_row, column = i % per_row * kColumns, token = call.tokens[row];
    const bool known = token >= 0 && token < call.count;
    const float nan = float_of_bits(0x7FC00000u);
    if constexpr (kColumns == 4) {
      const float4 x = known ? *reinterpret_cast<const float4*>(call.weight + token * call.width + column)
                             : make_float4(nan, nan, nan, nan);
      *reinterpret_cast<float4*>(call.out + row * call.width + column) = x;
    } else {
      call.out[row * call.width + column] = known ? call.weight[token * call.width + column] : nan;
    }
  }
}

// A warp per sorted position and 256 columns. The one at the beginning of a run of equal keys adds up the run; the
// others have nothing to do.
constexpr int kTokenColumns = 32 * kVector;

__global__ void embedding_leaves(const EmbeddingBackward call, int column_groups, bool aligned) {
  const int64_t rows = call.shards * call.shard_rows, warps = rows * column_groups;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t warp = first_item() / 32; warp < warps; warp += item_stride() / 32) {
    const int64_t begin = warp / column_groups, key = call.sorted_keys[begin];
    if (begin > 0 && call.sorted_keys[begin - 1] == key) continue;
    if (key >= call.shards * call.count || key % call.count == call.padding_idx) continue;
    const int column = static_cast<int>(warp % column_groups) * kTokenColumns + lane * kVector;
    const int count = min(kVector, call.width - column);
    if (count <= 0) continue;
    const bool whole = aligned && count == kVector;
    float sum[kVector];
    load8(call.leaves, FloatType::kFloat, key * call.width + column, count, whole, sum);
    constexpr int kAhead = 4;  // rows whose loads are in flight
    for (int64_t i = begin; i < rows;) {
      int64_t row[kAhead];
      int found = 0;
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const bool mine = found == a && i + a < rows && call.sorted_keys[i + a] == key;
        row[a] = mine ? call.sorted_rows[i + a] : 0;
        found += mine ? 1 : 0;
      }
      float x[kAhead][kVector];
#pragma unroll
      for (int a = 0; a < kAhead; ++a)
        if (a < found) load8(call.out_grad.data, call.out_grad.type, row[a] * call.width + column, count, whole, x[a]);
#pragma unroll
      for (int a = 0; a < kAhead; ++a)
        if (a < found) {
#pragma unroll
          for (int s = 0; s < kVector; ++s) sum[s] = sum[s] + x[a][s];
        }
      if (found < kAhead) break;
      i += kAhead;
    }
    store8(call.leaves, FloatType::kFloat, key * call.width + column, count, whole, sum);
  }
}

void embedding_forward(const EmbeddingForward& call, void* stream) {
  if (call.rows == 0) return;
  const auto queue = static_cast<cudaStream_t>(stream);
  const int64_t elements = call.rows * call.width;
  if (call.width % 4 == 0 && aligned16(call.weight, call.out))
    embedding_rows<4><<<grid_for(elements / 4), kThreads, 0, queue>>>(call);
  else
    embedding_rows<1><<<grid_for(elements), kThreads, 0, queue>>>(call);
  check_launch("embedding_forward");
}

void embedding_backward(const EmbeddingBackward& call, void* stream) {
  const int64_t rows = call.shards * call.shard_rows;
  if (rows == 0) return;
  const int groups = (call.width + kTokenColumns - 1) / kTokenColumns;
  const bool aligned = call.width % kVector == 0 && aligned16(call.out_grad.data, call.leaves);
  embedding_leaves<<<grid_for(rows * groups * 32), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(call, groups,
                                                                                                     aligned);
  check_launch("embedding_backward");
}

// ---- dropout: a thread has eight neighbouring elements of one shard, two Philox blocks ----

__global__ void dropout_kernel(const DropoutCall call, MaskShape mask, bool aligned) {
  RandomKey key = call.key_on_device ? *call.key_on_device : call.key;
  key.site = call.key.site;
  const uint32_t first_shard = key.shard;
  const int64_t per_shard = (call.shard_elements + kVector - 1) / kVector;
  const float kept = round_one(call.product, mask.kept_value);
  for (int64_t v = first_item(); v < per_shard * call.shards; v += item_stride()) {
    const int64_t shard = v / per_shard, index = v % per_shard * kVector, at = shard * call.shard_elements + index;
    const int count = static_cast<int>(min(int64_t{kVector}, call.shard_elements - index));
    const bool whole = aligned && count == kVector;
    float x[kVector], residual[kVector] = {};
    load8(call.x.data, call.x.type, at, count, whole, x);
    if (call.residual.data) load8(call.residual.data, call.residual.type, at, count, whole, residual);
    key.shard = first_shard + static_cast<uint32_t>(shard);
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      const PhiloxBlock random = random_block(key, static_cast<uint64_t>(index) / 4 + block);
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        float& y = x[4 * block + w];
        const float factor = mask.none || random.word[w] > mask.last_kept ? 0.0f : kept;
        y = round_one(call.product, round_one(call.product, y) * factor);
        if (call.residual.data) y = y + residual[4 * block + w];
      }
    }
    store8(call.out.data, call.out.type, at, count, whole, x);
  }
}

// The random words of eight elements from number `first` on, which need not begin a Philox block.
__device__ __forceinline__ void words_from(const RandomKey& key, uint64_t first, uint32_t (&words)[kVector]) {
  PhiloxBlock block = random_block(key, first / 4);
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const uint32_t at = static_cast<uint32_t>(first + i) % 4;
    if (i > 0 && at == 0) block = random_block(key, (first + i) / 4);
    words[i] = at == 0 ? block.word[0] : at == 1 ? block.word[1] : at == 2 ? block.word[2] : block.word[3];
  }
}

// A thread has eight neighbouring elements of one row.
__global__ void dropout_rows_kernel(const DropoutCall call, MaskShape mask, bool aligned) {
  RandomKey key = call.key_on_device ? *call.key_on_device : call.key;
  key.site = call.key.site;
  key.step = 0;
  const uint32_t first_shard = key.shard;
  const int64_t per_row = (call.row_elements + kVector - 1) / kVector,
                shard_rows = call.shard_elements / call.row_elements;
  const float kept = round_one(call.product, mask.kept_value);
  for (int64_t v = first_item(); v < per_row * shard_rows * call.shards; v += item_stride()) {
    const int64_t row = v / per_row, offset = (v - row * per_row) * kVector, at = row * call.row_elements + offset;
    const int count = static_cast<int>(min(int64_t{kVector}, call.row_elements - offset));
    const bool whole = aligned && count == kVector;
    float x[kVector], residual[kVector] = {};
    load8(call.x.data, call.x.type, at, count, whole, x);
    if (call.residual.data) load8(call.residual.data, call.residual.type, at, count, whole, residual);
    key.shard = first_shard + static_cast<uint32_t>(row / shard_rows);
    uint32_t words[kVector];
    words_from(key, static_cast<uint64_t>(call.row_ids[row] * call.row_elements + offset), words);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const float factor = mask.none || words[i] > mask.last_kept ? 0.0f : kept;
      x[i] = round_one(call.product, round_one(call.product, x[i]) * factor);
      if (call.residual.data) x[i] = x[i] + residual[i];
    }
    store8(call.out.data, call.out.type, at, count, whole, x);
  }
}

void apply_dropout_rows(const DropoutCall& call, cudaStream_t stream) {
  const bool aligned = call.row_elements % kVector == 0 && aligned16(call.x.data, call.residual.data, call.out.data);
  const int64_t rows = call.shards * (call.shard_elements / call.row_elements);
  dropout_rows_kernel<<<grid_for(rows * ((call.row_elements + kVector - 1) / kVector)), kThreads, 0, stream>>>(
      call, dropout_shape(call.drop_probability), aligned);
  check_launch("dropout of rows");
}

void apply_dropout(const DropoutCall& call, void* stream) {
  if (call.shards == 0 || call.shard_elements == 0) return;
  if (call.row_ids) return apply_dropout_rows(call, static_cast<cudaStream_t>(stream));
  const bool aligned = call.shard_elements % kVector == 0 && aligned16(call.x.data, call.residual.data, call.out.data);
  const int64_t vectors = call.shards * ((call.shard_elements + kVector - 1) / kVector);
  dropout_kernel<<<grid_for(vectors), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      call, dropout_shape(call.drop_probability), aligned);
  check_launch("dropout");
}

}  // namespace

const EmbeddingKernels& embedding_kernels() {
  static const EmbeddingKernels kernels{embedding_forward, embedding_backward};
  return kernels;
}
const DropoutKernels& dropout_kernels() {
  static const DropoutKernels kernels{apply_dropout};
  return kernels;
}

}  // namespace tandem::cuda
