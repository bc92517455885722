#include "engine/lockstep.h"

#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>

namespace tandem {
namespace {

void add_up(std::span<const int>, std::span<const std::span<double>> values) {
  double total = 0;
  for (const auto& v : values) total += v[0];
  for (const auto& v : values) v[0] = total;
}

TEST(Lockstep, EverybodyGetsTheTotalOfEachAllReduce) {
  Lockstep lockstep(add_up);
  std::vector<int> shards(5);
  std::iota(shards.begin(), shards.end(), 0);
  std::vector<double> got(5), second(5);
  int running = 0, most = 0;
  lockstep.run(
      shards,
      [&](int i) {
        most = std::max(most, ++running);
        double v = i + 1;
        --running;
        lockstep.all_reduce({&v, 1});
        most = std::max(most, ++running);
        got[i] = v;
        v *= i;
        --running;
        lockstep.all_reduce({&v, 1});
        second[i] = v;
      },
      [](int) {});
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(got[i], 15);
    EXPECT_EQ(second[i], 150);
  }
  EXPECT_EQ(most, 1) << "one at a time";
}

TEST(Lockstep, AnErrorInOneEndsAllAndIsTold) {
  Lockstep lockstep(add_up);
  const std::vector<int> shards{0, 1, 2, 3};
  for (int bad : {0, 2, 3})
    EXPECT_THROW(lockstep.run(
                     shards,
                     [&](int i) {
                       double v = 1;
                       lockstep.all_reduce({&v, 1});
                       if (i == bad) throw std::runtime_error("boom");
                       lockstep.all_reduce({&v, 1});
                     },
                     [](int) {}),
                 std::runtime_error);
}

TEST(Lockstep, ReducingUnequallyOftenIsAnErrorNotAHang) {
  Lockstep lockstep(add_up);
  const std::vector<int> shards{0, 1, 2};
  EXPECT_THROW(lockstep.run(
                   shards,
                   [&](int i) {
                     double v = 1;
                     if (i != 1) lockstep.all_reduce({&v, 1});
                   },
                   [](int) {}),
               std::logic_error);
}

}  // namespace
}  // namespace tandem
