#include "apps/chess/match/match_score.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace tandem::chess {
namespace {

MatchScore of_pairs(std::array<int64_t, 5> pairs) {
  MatchScore score;
  score.pairs = pairs;
  return score;
}

TEST(MatchScore, CountsGamesAndPairs) {
  MatchScore score;
  for (const int points : {2, 2, 1, 0}) score.add_game(points);
  score.add_pair(2, 1);
  score.add_pair(0, 2);
  EXPECT_EQ(score.games(), 4);
  EXPECT_EQ(score.wins, 2);
  EXPECT_EQ(score.draws, 1);
  EXPECT_EQ(score.losses, 1);
  EXPECT_EQ(score.pairs, (std::array<int64_t, 5>{0, 0, 1, 1, 0}));
  EXPECT_EQ(estimate_pairs(MatchScore{}), std::nullopt);
}

TEST(MatchScore, EloIsTheLogisticOne) {
  EXPECT_DOUBLE_EQ(elo_of_score(0.5), 0);
  EXPECT_NEAR(elo_of_score(0.75), 190.8485, 1e-4);
  EXPECT_NEAR(elo_of_score(10.0 / 11), 400, 1e-9);
  EXPECT_TRUE(std::isinf(elo_of_score(1)));
  EXPECT_LT(elo_of_score(0), -1e300);
}

// By hand: 4 pairs with 0, 1, 1 and 2 points have the mean 1/2 and the variance 1/8, half of what is possible (1/4), so
// r = 1/2, r' = (4/2 + 1) / 5 = 3/5 and k = z^2 r' / 4.
TEST(MatchScore, TheIntervalOfAFewPairsByHand) {
  const auto estimate = estimate_pairs(of_pairs({1, 0, 2, 0, 1}));
  ASSERT_TRUE(estimate);
  EXPECT_DOUBLE_EQ(estimate->mean, 0.5);
  EXPECT_DOUBLE_EQ(estimate->variance, 0.125);
  EXPECT_DOUBLE_EQ(estimate->share, 0.6);
  const double k = kNinetyFive * kNinetyFive * 0.6 / 4;
  const ScoreInterval interval = estimate->interval();
  EXPECT_NEAR(interval.high, 0.5 + std::sqrt(k * (0.25 + k / 4)) / (1 + k), 1e-12);
  EXPECT_NEAR(interval.low, 1 - interval.high, 1e-12);
  EXPECT_DOUBLE_EQ(estimate->above_half(), 0.5);
}

TEST(MatchScore, EveryIntervalHoldsTheMeansThatItsEquationAllows) {
  for (const std::array<int64_t, 5>& pairs : {std::array<int64_t, 5>{3, 9, 40, 21, 7},
                                              {0, 0, 0, 0, 12},
                                              {12, 0, 0, 0, 0},
                                              {0, 0, 30, 0, 0},
                                              {0, 1, 0, 0, 0}}) {
    const auto e = estimate_pairs(of_pairs(pairs));
    const ScoreInterval interval = e->interval();
    EXPECT_GE(interval.low, 0);
    EXPECT_LE(interval.high, 1);
    EXPECT_LT(interval.low, interval.high);
    for (double u = 0.0005; u < 1; u += 0.001) {
      const double n = static_cast<double>(e->count);
      const bool allowed =
          (e->mean - u) * (e->mean - u) <= kNinetyFive * kNinetyFive * e->share * u * (1 - u) / n + 1e-12;
      EXPECT_EQ(allowed, u >= interval.low - 1e-6 && u <= interval.high + 1e-6) << u;
    }
  }
}

// A match without a loss still leaves room for one; 10 pairs won as a whole are no proof of infinite strength.
TEST(MatchScore, AllPairsAlikeLeaveAnIntervalThatIsNotEmpty) {
  const auto perfect = estimate_pairs(of_pairs({0, 0, 0, 0, 10}));
  EXPECT_DOUBLE_EQ(perfect->interval().high, 1);
  EXPECT_NEAR(perfect->interval().low, 10 / (10 + kNinetyFive * kNinetyFive), 1e-12) << "Wilson's of 10 in 10";
  EXPECT_LT(perfect->above_half(), 1);
  const auto drawn = estimate_pairs(of_pairs({0, 0, 50, 0, 0}));
  EXPECT_GT(drawn->interval().high - drawn->interval().low, 0.03);
  EXPECT_LT(drawn->interval().high - drawn->interval().low, 0.05);
}

// Of many matches drawn with a known strength, 95 in 100 intervals hold it. Where nearly all pairs end alike they are
// wider than that, since a few pairs more could change the picture.
TEST(MatchScore, HoldsTheTruthAsOftenAsItSays) {
  struct Truth {
    std::array<double, 5> chance;
    int pairs;
  };
  const Truth truths[] = {{{0.1, 0.2, 0.4, 0.2, 0.1}, 50},    {{0.02, 0.08, 0.5, 0.3, 0.1}, 25},
                          {{0, 0, 0.05, 0.15, 0.8}, 50},      {{0, 0.01, 0.98, 0.01, 0}, 100},
                          {{0.25, 0.25, 0, 0.25, 0.25}, 200}, {{0.001, 0.004, 0.02, 0.075, 0.9}, 20}};
  std::mt19937_64 luck(1);
  for (const Truth& truth : truths) {
    double mean = 0;
    for (size_t i = 0; i < 5; ++i) mean += truth.chance[i] * static_cast<double>(i) / 4;
    std::discrete_distribution<size_t> draw(truth.chance.begin(), truth.chance.end());
    constexpr int kMatches = 4000;
    int held = 0;
    for (int match = 0; match < kMatches; ++match) {
      std::array<int64_t, 5> pairs = {};
      for (int p = 0; p < truth.pairs; ++p) ++pairs[draw(luck)];
      const ScoreInterval interval = estimate_pairs(of_pairs(pairs))->interval();
      held += interval.low <= mean && mean <= interval.high;
    }
    EXPECT_GE(held, kMatches * 0.94) << mean;
    EXPECT_LE(held, truth.chance[2] < 0.9 ? kMatches * 0.995 : kMatches) << mean << ": wider than needed";
  }
}

TEST(MatchScore, SuperiorityAgreesWithTheIntervalAboutOneHalf) {
  for (int64_t wins = 0; wins <= 30; ++wins) {
    const auto estimate = estimate_pairs(of_pairs({30 - wins, 0, 20, 0, wins}));
    const ScoreInterval interval = estimate->interval();
    EXPECT_EQ(interval.low > 0.5, estimate->above_half() > 0.975) << wins;
    EXPECT_EQ(interval.high < 0.5, estimate->above_half() < 0.025) << wins;
  }
}

TEST(MatchScore, AShareHasWilsonsInterval) {
  const ScoreInterval interval = share_interval(8, 10);
  EXPECT_NEAR(interval.low, 0.4901625, 1e-6);
  EXPECT_NEAR(interval.high, 0.9433178, 1e-6);
}

}  // namespace
}  // namespace tandem::chess
