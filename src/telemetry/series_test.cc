#include "telemetry/series.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem {
namespace {

TEST(Series, ShortRunsKeepEveryStep) {
  SeriesSet set(1000);
  for (int64_t s = 1; s <= 1000; ++s) set.add("loss", s, static_cast<double>(s));
  EXPECT_EQ(set.steps_per_bucket(), 1u);
  ASSERT_EQ(set.all()[0].buckets.size(), 1000u);
  EXPECT_EQ(set.step_of(0), 1);
  EXPECT_EQ(set.all()[0].buckets[41].mean(), 42);
}

TEST(Series, AMillionStepsStayBoundedAndASpikeOfOneIsSeen) {
  SeriesSet set(1000);
  for (int64_t s = 1; s <= 1000000; ++s) set.add("loss", s, s == 654321 ? 99 : 1.0);
  const auto& buckets = set.all()[0].buckets;
  EXPECT_LE(buckets.size(), 1000u);
  EXPECT_GT(buckets.size(), 400u);
  double greatest = 0, weight = 0;
  for (const Bucket& b : buckets) greatest = std::max(greatest, b.greatest), weight += b.weight;
  EXPECT_EQ(greatest, 99);
  EXPECT_EQ(weight, 1000000);
}

TEST(Series, CurvesShareOneGrid) {
  SeriesSet set(10);
  for (int64_t s = 1; s <= 35; ++s) set.add("a", s, 1);
  set.add("b", 35, 7);
  const Series* b = set.find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->buckets.size(), set.find("a")->buckets.size());
  EXPECT_EQ(b->buckets.back().mean(), 7);
}

TEST(Series, WeightsMakeASpeedOfSamplesOverTime) {
  SeriesSet set(2);
  set.add("speed", 1, 100, 1);  // 100 samples in 1 s
  set.add("speed", 2, 10, 9);   // 90 samples in 9 s
  set.add("speed", 3, 1, 1);
  EXPECT_DOUBLE_EQ(set.all()[0].buckets[0].mean(), 19);
}

TEST(Series, AbsurdStepsAndValuesDoNoHarm) {
  SeriesSet set(10, 2);
  set.add("a", 5, 1);
  set.add("a", INT64_MAX, 2);
  set.add("a", 0, 3);
  set.add("a", 6, NAN);
  set.add("a", 6, INFINITY);
  set.add("b", 6, 1e308, 1e308);
  set.add("c", 6, 1);
  set.add("d", 6, 1);
  set.add("e", 6, 1);
  EXPECT_LE(set.all()[0].buckets.size(), 10u);
  EXPECT_TRUE(set.left_out());
}

}  // namespace
}  // namespace tandem
