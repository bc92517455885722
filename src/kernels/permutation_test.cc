#include "kernels/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tandem {
namespace {

bool is_bijection(uint64_t n, uint64_t seed, uint64_t epoch) {
  const Permutation permutation(n, seed, epoch);
  std::vector<bool> seen(n);
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t value = permutation.at(i);
    if (value >= n || seen[value]) return false;
    seen[value] = true;
  }
  return true;
}

TEST(Permutation, IsABijectionForEverySize) {
  for (uint64_t n = 1; n <= 2000; ++n) ASSERT_TRUE(is_bijection(n, n * 31, n % 5)) << n;
  for (uint64_t n : {65535u, 65536u, 65537u, 1000003u}) ASSERT_TRUE(is_bijection(n, 7, 1)) << n;
}

TEST(Permutation, HugeSizesStayInRangeWithoutEqualNeighbours) {
  for (uint64_t n : {(uint64_t{1} << 40) + 1, (uint64_t{1} << 62) + 12345, uint64_t{1} << 63}) {
    const Permutation permutation(n, 1, 2);
    uint64_t last = permutation.at(n - 1);
    for (uint64_t i = 0; i < 1000; ++i) {
      const uint64_t value = permutation.at(i);
      EXPECT_LT(value, n);
      EXPECT_NE(value, last);
      last = value;
    }
  }
}

TEST(Permutation, EpochsAndSeedsDiffer) {
  constexpr uint64_t kSize = 1000;
  const auto same = [&](const Permutation& a, const Permutation& b) {
    int count = 0;
    for (uint64_t i = 0; i < kSize; ++i) count += a.at(i) == b.at(i);
    return count;
  };
  const Permutation base(kSize, 1, 1);
  // Two random orders agree in 1 place on average; 8 or more has a chance of 1e-5.
  EXPECT_LT(same(base, Permutation(kSize, 1, 2)), 8);
  EXPECT_LT(same(base, Permutation(kSize, 2, 1)), 8);
  EXPECT_LT(same(base, Permutation(kSize, 1, 1 + (uint64_t{1} << 32))), 8);
  EXPECT_EQ(same(base, Permutation(kSize, 1, 1)), int(kSize));
}

// Over many epochs, every sample comes to every place equally often.
TEST(Permutation, EverySampleReachesEveryPlaceEvenly) {
  for (uint64_t n : {2u, 3u, 5u, 8u, 13u, 24u, 33u}) {
    const int epochs = 4000;
    std::vector<int> counts(n * n);
    for (int epoch = 0; epoch < epochs; ++epoch) {
      const Permutation permutation(n, 5, epoch);
      for (uint64_t i = 0; i < n; ++i) ++counts[i * n + permutation.at(i)];
    }
    double chi2 = 0;
    const double expected = double(epochs) / n;
    for (int count : counts) chi2 += (count - expected) * (count - expected) / expected;
    const double freedom = double(n - 1) * (n - 1);
    // chi2 of a doubly stochastic table, times (n-1)/n for its fixed rows and columns; 5 deviations.
    EXPECT_NEAR(chi2 * (n - 1) / n, freedom, 5 * std::sqrt(2 * freedom)) << n;
  }
}

// Neighbours in the order are not neighbours in the data: the distance behaves as that of two random places.
TEST(Permutation, NeighboursAreTornApart) {
  constexpr uint64_t kSize = 100000;
  const Permutation permutation(kSize, 9, 0);
  double distance = 0;
  for (uint64_t i = 0; i + 1 < kSize; ++i)
    distance += std::fabs(double(permutation.at(i)) - double(permutation.at(i + 1))) / kSize;
  EXPECT_NEAR(distance / (kSize - 1), 1.0 / 3, 0.005);
}

}  // namespace
}  // namespace tandem
