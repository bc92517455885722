#include "rl/replay/priority.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "rl/replay/priority_tree.h"

namespace tandem {
namespace {

TEST(Priority, PowerIsThatOfTheMathLibrary) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const double x = std::exp(std::uniform_real_distribution<double>(-12, 12)(random));
    const double y = std::uniform_real_distribution<double>(-1, 1)(random);
    EXPECT_NEAR(exact_pow(x, y) / std::pow(x, y), 1, 1e-14);
  }
  EXPECT_EQ(exact_exp(0), 1);
}

TEST(Priority, IsThePowerOfTheErrorInUnits) {
  for (float error : {0.0f, 0.01f, 0.5f, 1.0f, 30.0f})
    EXPECT_NEAR(static_cast<double>(priority_of(error, 0.6)), std::pow(error + 1e-3, 0.6) * 0x1p20, 0.51);
  EXPECT_EQ(priority_of(-0.5f, 0.6), priority_of(0.5f, 0.6));
  EXPECT_EQ(priority_of(123.0f, 0), 1 << 20);
}

TEST(Priority, HasNoValueThatBreaksASum) {
  EXPECT_GE(priority_of(0, 1), 1);
  EXPECT_EQ(priority_of(1e30f, 0.6), kLargestPriority);
  EXPECT_EQ(priority_of(INFINITY, 0.6), kLargestPriority);
  EXPECT_EQ(priority_of(NAN, 0.6), kLargestPriority);
}

TEST(PriorityTree, TotalsAndPlacesAreThoseOfPlainPrefixSums) {
  std::mt19937_64 random(2);
  for (int64_t leaves : {1, 2, 15, 16, 17, 100, 256, 257, 5000}) {
    std::vector<int64_t> memory(PriorityTree::words(leaves)), plain(leaves);
    PriorityTree tree(memory, leaves);
    for (int change = 0; change < 3000; ++change) {
      const int64_t leaf = random() % leaves, priority = random() % 4 ? random() % kLargestPriority : 0;
      tree.set(leaf, priority);
      plain[leaf] = priority;
    }
    int64_t before = 0;
    for (int64_t leaf = 0; leaf < leaves; ++leaf) {
      EXPECT_EQ(tree.get(leaf), plain[leaf]);
      if (plain[leaf] > 0) {
        EXPECT_EQ(tree.find(before), leaf);
        EXPECT_EQ(tree.find(before + plain[leaf] - 1), leaf);
        std::vector<int64_t> two{before + plain[leaf] - 1, before};
        tree.find_all(two);
        EXPECT_EQ(two, (std::vector<int64_t>{leaf, leaf}));
      }
      before += plain[leaf];
    }
    EXPECT_EQ(tree.total(), before);
  }
}

TEST(PriorityTree, ForgetsItsHistory) {
  std::mt19937_64 random(3);
  std::vector<int64_t> a(PriorityTree::words(300)), b(PriorityTree::words(300));
  PriorityTree changed(a, 300), fresh(b, 300);
  for (int i = 0; i < 10'000; ++i) changed.set(random() % 300, random() % kLargestPriority);
  for (int64_t leaf = 0; leaf < 300; ++leaf) fresh.set(leaf, changed.get(leaf));
  EXPECT_EQ(a, b);
}

}  // namespace
}  // namespace tandem
