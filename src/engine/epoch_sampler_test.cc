#include "engine/epoch_sampler.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace tandem {
namespace {

TEST(EpochSampler, AnEpochSeesEverySampleOnceWhateverTheSizes) {
  for (auto [size, shards, micro_batches, micro_batch_size] :
       {std::tuple{5000, 24, 1, 8}, {100, 3, 2, 5}, {7, 4, 1, 3}, {48, 24, 1, 2}, {1, 2, 2, 2}}) {
    const EpochSampler sampler(size, shards, micro_batches, micro_batch_size, 7);
    for (int epoch = 0; epoch < 3; ++epoch) {
      std::map<int64_t, int> seen;
      int64_t real = 0;
      for (int64_t u = 0; u < sampler.updates_per_epoch(); ++u) {
        int64_t in_update = 0, claimed = 0;
        for (int s = 0; s < shards; ++s)
          for (int m = 0; m < micro_batches; ++m) {
            const Slice slice = sampler.slice(epoch * sampler.updates_per_epoch() + u, s, m);
            ASSERT_EQ(slice.samples.size(), static_cast<size_t>(micro_batch_size)) << "the shape never changes";
            ASSERT_EQ(slice.epoch, epoch);
            for (int64_t i = 0; i < slice.real; ++i) ++seen[slice.samples[i]];
            for (int64_t sample : slice.samples) ASSERT_TRUE(sample >= 0 && sample < size);
            in_update += slice.real;
            claimed = slice.real_in_update;
          }
        ASSERT_EQ(in_update, claimed);
        real += in_update;
      }
      EXPECT_EQ(real, size);
      EXPECT_EQ(seen.size(), static_cast<size_t>(size));
    }
  }
}

TEST(EpochSampler, OrderFollowsSeedAndEpoch) {
  auto order = [](uint64_t seed, int64_t epoch) {
    const EpochSampler sampler(1000, 1, 1, 1000, seed);
    return sampler.slice(epoch, 0, 0).samples;
  };
  EXPECT_EQ(order(1, 0), order(1, 0));
  EXPECT_NE(order(1, 0), order(1, 1));
  EXPECT_NE(order(1, 0), order(2, 0));
}

TEST(EpochSampler, PaddingRepeatsRowsOfTheSameUpdate) {
  const EpochSampler sampler(10, 4, 1, 2, 3);  // updates of 8 and of 2
  std::set<int64_t> real;
  for (int s = 0; s < 4; ++s) {
    const Slice slice = sampler.slice(1, s, 0);
    for (int64_t i = 0; i < slice.real; ++i) real.insert(slice.samples[i]);
    EXPECT_EQ(slice.real, s == 0 ? 2 : 0);
  }
  for (int s = 0; s < 4; ++s)
    for (int64_t sample : sampler.slice(1, s, 0).samples) EXPECT_TRUE(real.contains(sample));
}

}  // namespace
}  // namespace tandem
