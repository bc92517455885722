#include "kernels/cpu/random_fill.h"

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/cpu/cpu_dispatch.h"
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

#if defined(__x86_64__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // a false warning of g++ 12 about its own <immintrin.h>
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
// The same with eight blocks in a vector, each word in the low 32 bits of a 64-bit lane: _mm512_mul_epu32 multiplies
// the low 32 bits of each lane to 64. The high bits do not matter.
__attribute__((target("avx512f,avx512dq,avx512vl,avx512bw"), noinline)) void make_batch_avx512(uint32_t* words,
                                                                                               const RandomKey& key,
                                                                                               uint64_t first_block) {
  const PhiloxBlock counter = random_counter(key, first_block);
  if (counter.word[0] > UINT32_MAX - kBlocks) return make_batch(words, key, first_block);  // carries into word 3
  const __m512i m0 = _mm512_set1_epi64(kPhiloxMultiplier0), m1 = _mm512_set1_epi64(kPhiloxMultiplier1);
  const __m512i first_half = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11),
                second_half = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
  for (int b = 0; b < kBlocks; b += 8) {
    __m512i c0 = _mm512_add_epi64(_mm512_set1_epi64(counter.word[0] + static_cast<uint64_t>(b)),
                                  _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
    __m512i c1 = _mm512_set1_epi64(counter.word[1]), c2 = _mm512_set1_epi64(counter.word[2]),
            c3 = _mm512_set1_epi64(counter.word[3]);
    uint32_t key0 = static_cast<uint32_t>(key.seed), key1 = static_cast<uint32_t>(key.seed >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      const __m512i product0 = _mm512_mul_epu32(m0, c0), product1 = _mm512_mul_epu32(m1, c2);
      constexpr int kXorOfThree = 0x96;
      constexpr _MM_PERM_ENUM kHighToLow = _MM_PERM_DDBB;  // a shift would compete for the multiplier's port
      c0 = _mm512_ternarylogic_epi64(_mm512_shuffle_epi32(product1, kHighToLow), c1, _mm512_set1_epi64(key0),
                                     kXorOfThree);
      c2 = _mm512_ternarylogic_epi64(_mm512_shuffle_epi32(product0, kHighToLow), c3, _mm512_set1_epi64(key1),
                                     kXorOfThree);
      c1 = product1;
      c3 = product0;
      key0 += kPhiloxWeyl0;
      key1 += kPhiloxWeyl1;
    }
    const __m512i low = _mm512_mask_mov_epi32(c0, 0xAAAA, _mm512_slli_epi64(c1, 32)),
                  high = _mm512_mask_mov_epi32(c2, 0xAAAA, _mm512_slli_epi64(c3, 32));
    _mm512_storeu_si512(words + 4 * b, _mm512_permutex2var_epi64(low, first_half, high));
    _mm512_storeu_si512(words + 4 * b + 16, _mm512_permutex2var_epi64(low, second_half, high));
  }
}
#pragma GCC diagnostic pop
#endif

// Calls use(words, out position, count) with the words of first_index, first_index + 1, ...
template <typename Use>
__attribute__((always_inline)) inline void for_batches(int64_t n, const RandomKey& key, uint64_t first_index,
                                                       CpuVariant variant, const Use& use) {
  alignas(64) uint32_t words[kBatch];
  uint64_t block = first_index / 4;
  int skip = static_cast<int>(first_index % 4);
  for (int64_t done = 0; done < n;) {
#if defined(__x86_64__)
    if (variant == CpuVariant::kAvx512)
      make_batch_avx512(words, key, block);
    else
#endif
      make_batch(words, key, block);
    const int count = static_cast<int>(std::min<int64_t>(kBatch - skip, n - done));
    use(words + skip, done, count);
    done += count;
    block += kBlocks;
    skip = 0;
  }
}

// All words by the central ratio, then those in the tails (15 %) gathered and done in one batch: fewer operations than
// both ratios for all, and no mispredicted branch.
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
    for_batches(n, key, first_index, variant,
                [=](const uint32_t* words, int64_t offset, int count) TANDEM_INLINE_LAMBDA {
                  float* __restrict o = out + offset;
                  for (int i = 0; i < count; ++i) o[i] = mask_from_u32(words[i], shape);
                });
  });
}

}  // namespace

void fill_u32(uint32_t* out, int64_t n, const RandomKey& key, uint64_t first_index, CpuVariant variant) {
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    for_batches(n, key, first_index, variant,
                [=](const uint32_t* words, int64_t offset, int count)
                    TANDEM_INLINE_LAMBDA { std::copy(words, words + count, out + offset); });
  });
}

void fill_uniform(float* out, int64_t n, const RandomKey& key, uint64_t first_index, float low, float high,
                  CpuVariant variant) {
  const UniformShape shape = uniform_shape(low, high);
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    for_batches(n, key, first_index, variant,
                [=](const uint32_t* words, int64_t offset, int count) TANDEM_INLINE_LAMBDA {
                  float* __restrict o = out + offset;
                  for (int i = 0; i < count; ++i) o[i] = shaped_uniform(words[i], shape);
                });
  });
}

void fill_normal(float* out, int64_t n, const RandomKey& key, uint64_t first_index, float mean, float deviation,
                 CpuVariant variant) {
  const NormalShape shape{mean, deviation};
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    for_batches(n, key, first_index, variant,
                [=](const uint32_t* words, int64_t offset, int count)
                    TANDEM_INLINE_LAMBDA { normals(words, out + offset, count, shape); });
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
