#include "kernels/random_fill.h"

#include <algorithm>

#include "kernels/cpu_dispatch.h"
#include "kernels/random_fill_math.h"

namespace tandem {
namespace {

constexpr int kBlocks = 64;          // Philox blocks of a batch
constexpr int kBatch = 4 * kBlocks;  // words of a batch

// words[0..kBatch) are those of indices 4 * first_block, ... The compiler makes vectors over b.
__attribute__((always_inline)) inline void make_batch(uint32_t* __restrict words, const RandomKey& key,
                                                      uint64_t first_block) {
  for (int b = 0; b < kBlocks; ++b) {
    const PhiloxBlock block = random_block(key, first_block + static_cast<uint64_t>(b));
    for (int w = 0; w < 4; ++w) words[4 * b + w] = block.word[w];
  }
}

// Calls use(words, out position, count) with the words of first_index, first_index + 1, ...
template <typename Use>
__attribute__((always_inline)) inline void for_batches(int64_t n, const RandomKey& key, uint64_t first_index,
                                                       const Use& use) {
  alignas(64) uint32_t words[kBatch];
  uint64_t block = first_index / 4;
  int skip = static_cast<int>(first_index % 4);
  for (int64_t done = 0; done < n;) {
    make_batch(words, key, block);
    const int count = static_cast<int>(std::min<int64_t>(kBatch - skip, n - done));
    use(words + skip, done, count);
    done += count;
    block += kBlocks;
    skip = 0;
  }
}

// All words by the central ratio, then those of the tails (15 %) gathered and done together: fewer operations than both
// ratios for all, and no branch that is mispredicted.
__attribute__((always_inline)) inline void normals(const uint32_t* words, float* __restrict out, int count,
                                                   const NormalShape& shape) {
  for (int i = 0; i < count; ++i)
    out[i] = shaped_normal(static_cast<float>(normal_quantile_centre(centred_from_u32(words[i]))), shape);
  int tails[kBatch];
  double offsets[kBatch];
  int found = 0;
  for (int i = 0; i < count; ++i) {
    const double q = centred_from_u32(words[i]);
    tails[found] = i;
    offsets[found] = q;
    found += in_quantile_centre(q) ? 0 : 1;
  }
  float values[kBatch];
  for (int i = 0; i < found; ++i)
    values[i] = shaped_normal(static_cast<float>(normal_quantile_tail(offsets[i])), shape);
  for (int i = 0; i < found; ++i) out[tails[i]] = values[i];
}

void fill_mask(float* out, int64_t n, const RandomKey& key, uint64_t first_index, const MaskShape& shape,
               CpuVariant variant) {
  if (shape.none) {
    std::fill(out, out + std::max<int64_t>(n, 0), 0.0f);
    return;
  }
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    for_batches(n, key, first_index, [=](const uint32_t* words, int64_t at, int count) TANDEM_INLINE_LAMBDA {
      float* __restrict o = out + at;
      for (int i = 0; i < count; ++i) o[i] = mask_from_u32(words[i], shape);
    });
  });
}

}  // namespace

void fill_u32(uint32_t* out, int64_t n, const RandomKey& key, uint64_t first_index, CpuVariant variant) {
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    for_batches(n, key, first_index, [=](const uint32_t* words, int64_t at, int count) TANDEM_INLINE_LAMBDA {
      std::copy(words, words + count, out + at);
    });
  });
}

void fill_uniform(float* out, int64_t n, const RandomKey& key, uint64_t first_index, float low, float high,
                  CpuVariant variant) {
  const UniformShape shape = uniform_shape(low, high);
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    for_batches(n, key, first_index, [=](const uint32_t* words, int64_t at, int count) TANDEM_INLINE_LAMBDA {
      float* __restrict o = out + at;
      for (int i = 0; i < count; ++i) o[i] = shaped_uniform(words[i], shape);
    });
  });
}

void fill_normal(float* out, int64_t n, const RandomKey& key, uint64_t first_index, float mean, float deviation,
                 CpuVariant variant) {
  const NormalShape shape{mean, deviation};
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    for_batches(n, key, first_index, [=](const uint32_t* words, int64_t at, int count) TANDEM_INLINE_LAMBDA {
      normals(words, out + at, count, shape);
    });
  });
}

void fill_bernoulli_mask(float* out, int64_t n, const RandomKey& key, uint64_t first_index, double keep_probability,
                         float kept_value, CpuVariant variant) {
  fill_mask(out, n, key, first_index, mask_shape(keep_probability, kept_value), variant);
}

void fill_dropout_mask(float* out, int64_t n, const RandomKey& key, uint64_t first_index, double drop_probability,
                       CpuVariant variant) {
  fill_mask(out, n, key, first_index, dropout_shape(drop_probability), variant);
}

}  // namespace tandem
