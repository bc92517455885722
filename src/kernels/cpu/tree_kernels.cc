#include "kernels/tree_kernels.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_dispatch.h"

namespace tandem {
namespace {

void tree_sum(const float* leaves, int64_t leaf_stride, int shards, const int* merges, float* out, int64_t n, bool add,
              void* /*stream*/) {
  constexpr int64_t kChunk = 256;  // elements that go through the stack at a time: it stays in L1
  std::vector<float> stack(static_cast<size_t>(tree_depth(merges, shards) * kChunk));
  float* const bottom = stack.data();
  run_variant(best_cpu_variant(), [=]() TANDEM_INLINE_LAMBDA {
    for (int64_t begin = 0; begin < n; begin += kChunk) {
      const int64_t length = std::min(kChunk, n - begin);
      float* top = bottom;
      for (int shard = 0; shard < shards; ++shard) {
        const float* const leaf = leaves + shard * leaf_stride + begin;
        TANDEM_INDEPENDENT
        for (int64_t i = 0; i < length; ++i) top[i] = leaf[i] + 0.0f;
        for (int merge = 0; merge < merges[shard]; ++merge) {
          float* const left = top - kChunk;
          TANDEM_INDEPENDENT
          for (int64_t i = 0; i < length; ++i) left[i] = left[i] + top[i];
          top = left;
        }
        top += kChunk;
      }
      float* const o = out + begin;
      if (add) {
        TANDEM_INDEPENDENT
        for (int64_t i = 0; i < length; ++i) o[i] = o[i] + bottom[i];
      } else {
        std::copy_n(bottom, length, o);
      }
    }
  });
}

void shard_sums(const float* x, const float* weight, int shards, int64_t rows, float* out, void* /*stream*/) {
  run_variant(best_cpu_variant(), [=]() TANDEM_INLINE_LAMBDA {
    float lanes[kSumLanes];
    for (int shard = 0; shard < shards; ++shard) {
      const float* const values = x + shard * rows;
      const float* const weights = weight ? weight + shard * rows : nullptr;
      std::fill_n(lanes, kSumLanes, 0.0f);
      for (int64_t begin = 0; begin < rows; begin += kSumLanes) {
        const int64_t length = std::min<int64_t>(kSumLanes, rows - begin);
        if (weights) {
          TANDEM_INDEPENDENT
          for (int64_t i = 0; i < length; ++i) lanes[i] = lanes[i] + values[begin + i] * weights[begin + i];
        } else {
          TANDEM_INDEPENDENT
          for (int64_t i = 0; i < length; ++i) lanes[i] = lanes[i] + values[begin + i];
        }
      }
      for (int half = kSumLanes / 2; half > 0; half /= 2) {
        TANDEM_INDEPENDENT
        for (int i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
      }
      out[shard] = lanes[0];
    }
  });
}

}  // namespace

int tree_depth(const int* merges, int shards) {
  int waiting = 0, most = 0;
  for (int shard = 0; shard < shards; ++shard) {
    most = std::max(most, ++waiting);
    waiting -= merges[shard];
    if (waiting < 1) throw std::logic_error("a sum tree that merges more partial sums than there are");
  }
  if (waiting != 1) throw std::logic_error("a sum tree that ends with " + std::to_string(waiting) + " sums, not one");
  return most;
}

const TreeKernels& TreeKernels::cpu() {
  static const TreeKernels kernels{tandem::tree_sum, tandem::shard_sums};
  return kernels;
}

}  // namespace tandem
