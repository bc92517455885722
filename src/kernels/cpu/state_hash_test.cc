#include "kernels/cpu/state_hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "kernels/cpu/random_fill.h"

namespace tandem {
namespace {

std::vector<unsigned char> bytes(int64_t n) {
  std::vector<uint32_t> words(n / 4 + 1);
  fill_u32(words.data(), words.size(), {1, 2, 3, 4});
  std::vector<unsigned char> out(n);
  if (n > 0) std::memcpy(out.data(), words.data(), n);
  return out;
}

TEST(StateHash, EverySingleBitFlipChangesIt) {
  std::vector<unsigned char> data = bytes(257);
  std::set<uint64_t> seen{state_hash(data.data(), 257)};
  for (int bit = 0; bit < 257 * 8; ++bit) {
    data[bit / 8] ^= 1 << (bit % 8);
    EXPECT_TRUE(seen.insert(state_hash(data.data(), 257)).second) << bit;
    data[bit / 8] ^= 1 << (bit % 8);
  }
}

TEST(StateHash, LengthAndOrderCount) {
  const std::vector<unsigned char> zeros(100);
  std::set<uint64_t> seen;
  for (int64_t n = 0; n <= 100; ++n) EXPECT_TRUE(seen.insert(state_hash(zeros.data(), n)).second) << n;
  std::vector<unsigned char> data = bytes(3 * kHashBlockBytes), swapped = data;
  std::swap_ranges(swapped.begin(), swapped.begin() + kHashBlockBytes, swapped.begin() + kHashBlockBytes);
  EXPECT_NE(state_hash(data.data(), data.size()), state_hash(swapped.data(), swapped.size()));
  std::swap_ranges(data.begin() + 8, data.begin() + 16, data.begin() + 16);
  EXPECT_NE(state_hash(data.data(), 64), state_hash(bytes(64).data(), 64));
}

TEST(StateHash, BlocksTellWhereBuffersDiffer) {
  std::vector<unsigned char> data = bytes(3 * kHashBlockBytes + 5);
  const auto before = block_hashes(data.data(), data.size());
  ASSERT_EQ(before.size(), 4u);
  data[kHashBlockBytes + 77] ^= 4;
  data.back() ^= 1;
  const auto after = block_hashes(data.data(), data.size());
  EXPECT_EQ(before[0], after[0]);
  EXPECT_NE(before[1], after[1]);
  EXPECT_EQ(before[2], after[2]);
  EXPECT_NE(before[3], after[3]);
}

// The last value is written down: two builds of different days must agree, or ranks would accuse each other.
TEST(StateHash, IsTheSameOnEveryVariantAlignmentAndBuild) {
  const std::vector<unsigned char> data = bytes(kHashBlockBytes + 1003);
  for (int64_t n : {int64_t{0}, int64_t{1}, int64_t{8}, int64_t{1000}, kHashBlockBytes, kHashBlockBytes + 1003}) {
    const uint64_t expected = state_hash(data.data(), n, CpuVariant::kPlain);
    std::vector<unsigned char> shifted(n + 3);
    if (n > 0) std::memcpy(shifted.data() + 3, data.data(), n);
    for (CpuVariant variant : runnable_cpu_variants()) {
      EXPECT_EQ(state_hash(data.data(), n, variant), expected);
      EXPECT_EQ(state_hash(shifted.data() + 3, n, variant), expected);
    }
  }
  EXPECT_EQ(state_hash("tandem", 6), 14240154936071795923u);
}

TEST(StateHash, FoldingDependsOnOrder) {
  EXPECT_NE(fold_hash(fold_hash(0, 1), 2), fold_hash(fold_hash(0, 2), 1));
  EXPECT_NE(fold_hash(0, 0), 0u);
}

}  // namespace
}  // namespace tandem
