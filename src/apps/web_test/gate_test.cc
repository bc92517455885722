#include "apps/web_test/gate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem {
namespace {

std::vector<double> around(double mean, double step) {
  std::vector<double> out;
  for (int i = 0; i < 100; ++i) out.push_back(mean + step * (i % 10 - 4.5));
  return out;
}

TEST(Gate, EqualAndBetterPassAndWorseFails) {
  const auto before = around(0.7, 0.02);
  EXPECT_TRUE(compare("old", "score", before, before).passed);
  EXPECT_TRUE(compare("old", "score", before, around(0.8, 0.02)).passed);
  EXPECT_FALSE(compare("old", "score", before, around(0.68, 0.02)).passed) << "beyond chance";
  EXPECT_FALSE(compare("new", "error", before, around(0.72, 0.02)).passed);
  EXPECT_TRUE(compare("new", "error", before, around(0.5, 0.02)).passed);
}

TEST(Gate, WhatIsTooSmallToMatterPassesHoweverSureItIs) {
  const auto before = around(0.7, 0.02);
  EXPECT_LT(compare("old", "score", before, around(0.695, 0.02)).high, 0);
  EXPECT_TRUE(compare("old", "score", before, around(0.695, 0.02)).passed);
}

TEST(Gate, ALossWithinChancePassesAndALargeOneNeverDoes) {
  const auto before = around(0.7, 0.02);
  auto noisy = before;
  for (size_t i = 0; i < noisy.size(); ++i) noisy[i] += (i % 2 ? 0.5 : -0.5) - 0.01;
  EXPECT_TRUE(compare("old", "score", before, noisy).passed);
  for (double& value : noisy) value -= 0.05;
  const GateLine line = compare("old", "score", before, noisy);
  EXPECT_GT(line.high, 0) << "chance could explain it";
  EXPECT_FALSE(line.passed) << "but it is more than may be lost";
}

TEST(Gate, NumbersThatAreNoneFail) {
  auto broken = around(0.7, 0.02);
  broken[3] = std::nan("");
  EXPECT_FALSE(compare("old", "score", around(0.7, 0.02), broken).passed);
}

}  // namespace
}  // namespace tandem
