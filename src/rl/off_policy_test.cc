#include "rl/off_policy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/philox.h"

namespace tandem {
namespace {

constexpr double kGamma = 0.9;

StatePolicy always(int32_t action) {
  return [action](const float*, int64_t n, int32_t* actions) { std::fill_n(actions, n, action); };
}

// Two states. Action a leads to state a; state 1 pays 1, action 1 costs 0.2. After each step the episode ends with
// probability 0.2. Begun in either state, played at random.
LoggedEpisodes two_states(int64_t episodes, uint64_t seed) {
  LoggedEpisodes log;
  log.state_size = 1;
  log.action_count = 2;
  uint64_t draw = 0;
  const auto coin = [&] { return random_below({seed, 0, 0, 1}, draw++, 2); };
  for (int64_t e = 0; e < episodes; ++e) {
    log.begin_episode();
    float state = static_cast<float>(coin());
    for (bool over = false; !over;) {
      const int32_t action = static_cast<int32_t>(coin());
      const float next = static_cast<float>(action);
      over = random_uniform({seed, 0, 0, 2}, draw++) < 0.2f;
      log.add({&state, 1}, action, state - 0.2f * next, {&next, 1}, over);
      state = next;
    }
  }
  return log;
}

// Of always taking `action`, by hand: V(a) = a - 0.2 a + g V(a) once there, with g = gamma times going on.
double two_states_value(int action) {
  const double g = kGamma * 0.8, there = 0.8 * action / (1 - g);
  const double from[2] = {0 - 0.2 * action + g * there, 1 - 0.2 * action + g * there};
  return (from[0] + from[1]) / 2;
}

TEST(OffPolicy, FindsTheValueThatArithmeticGives) {
  const LoggedEpisodes log = two_states(4000, 1);
  const FittedQEvaluation evaluation(log, kGamma);
  const PolicyValue zero = evaluation.value(always(0)), one = evaluation.value(always(1));
  EXPECT_NEAR(zero.value, two_states_value(0), 0.02);
  EXPECT_NEAR(one.value, two_states_value(1), 0.05);
  const ValueChange change = value_change(zero, one);
  const double truth = two_states_value(1) - two_states_value(0);
  EXPECT_LT(change.low, truth);
  EXPECT_GT(change.high, truth);
  EXPECT_LT(change.high - change.low, 0.2);
  EXPECT_EQ(one.known, 1);
}

TEST(OffPolicy, ItsIntervalHoldsTheTruthAboutAsOftenAsItSays) {
  const double truth = two_states_value(1) - two_states_value(0);
  int held = 0, trials = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const LoggedEpisodes log = two_states(30, seed);
    const FittedQEvaluation evaluation(log, kGamma);
    const ValueChange change = value_change(evaluation.value(always(0)), evaluation.value(always(1)));
    ++trials;
    if (change.low <= truth && truth <= change.high) ++held;
  }
  EXPECT_GE(held, trials * 88 / 100) << held << " of " << trials;
}

// Sixteen numbers, of which the first matters: the right action is 0 below 0, else 1; two others are never right.
LoggedEpisodes planted(int64_t episodes) {
  constexpr int64_t kWidth = 16;
  LoggedEpisodes log;
  log.state_size = kWidth;
  log.action_count = 4;
  uint64_t draw = 0;
  std::vector<float> state(kWidth), next(kWidth);
  const auto look = [&](std::vector<float>& into) {
    for (float& number : into) number = 2 * random_uniform({7, 0, 0, 3}, draw++) - 1;
  };
  for (int64_t e = 0; e < episodes; ++e) {
    log.begin_episode();
    look(state);
    for (int t = 0; t < 10; ++t) {
      look(next);
      const int32_t action = static_cast<int32_t>(random_below({7, 0, 0, 4}, draw++, 4));
      const float right = action == (state[0] < 0 ? 0 : 1) ? 1.0f : 0.0f;
      log.add(state, action, right + 0.5f * random_normal({7, 0, 0, 5}, draw++), next, t == 9);
      state = next;
    }
  }
  return log;
}

StatePolicy right_in(double share) {
  return [share](const float* states, int64_t n, int32_t* actions) {
    for (int64_t i = 0; i < n; ++i) {
      const bool low = states[i * 16] < 0, right = std::abs(states[i * 16 + 1]) < share;
      actions[i] = right ? (low ? 0 : 1) : (low ? 1 : 0);
    }
  };
}

TEST(OffPolicy, TellsAPlantedBetterPolicyFromAWorseOneByFortyEpisodes) {
  const LoggedEpisodes log = planted(40);
  const FittedQEvaluation evaluation(log, kGamma);
  const PolicyValue good = evaluation.value(right_in(1)), half = evaluation.value(right_in(0.5)),
                    bad = evaluation.value(right_in(0));
  EXPECT_GT(value_change(bad, good).low, 0);
  EXPECT_LT(value_change(good, bad).high, 0);
  EXPECT_GT(good.value, half.value);
  EXPECT_GT(half.value, bad.value);
  EXPECT_GT(good.value, evaluation.own_return()) << "better than who played";
}

TEST(OffPolicy, EqualPoliciesAreEqualToTheBitAndSoIsASecondLook) {
  const LoggedEpisodes log = planted(20);
  const FittedQEvaluation evaluation(log, kGamma), again(log, kGamma);
  const PolicyValue one = evaluation.value(right_in(0.5)), other = again.value(right_in(0.5));
  EXPECT_EQ(one.value, other.value);
  EXPECT_EQ(one.influence, other.influence);
  const ValueChange change = value_change(one, other);
  EXPECT_EQ(change.low, 0);
  EXPECT_EQ(change.high, 0);
  double sum = 0;
  for (const double own : one.influence) sum += own;
  EXPECT_NEAR(sum, 0, 1e-4);
}

TEST(OffPolicy, SaysHowManyDecisionsTheEpisodesKnow) {
  LoggedEpisodes log = planted(20);
  log.action_count = 6;  // nobody ever took the last two
  const FittedQEvaluation evaluation(log, kGamma);
  EXPECT_EQ(evaluation.value(always(5)).known, 0);
  EXPECT_EQ(evaluation.value(always(1)).known, 1);
  EXPECT_TRUE(std::isnan(evaluation.value(always(-1)).value));
  EXPECT_TRUE(std::isnan(evaluation.value(always(6)).value));
}

TEST(OffPolicy, ASuccessionWithoutAnEndHasAValue) {
  LoggedEpisodes log;
  log.state_size = 1;
  log.action_count = 2;
  const float state = 1;
  for (int e = 0; e < 6; ++e) {
    log.begin_episode();
    for (int t = 0; t < 20; ++t) log.add({&state, 1}, t % 2, 1, {&state, 1}, false);
  }
  const FittedQEvaluation evaluation(log, 1);
  EXPECT_NEAR(evaluation.value(always(0)).value, 1 / (1 - FittedQEvaluation::kMostGamma), 0.01);
}

TEST(OffPolicy, StudentsQuantilesAreThoseOfTheTables) {
  EXPECT_NEAR(student_t_95(4), 2.776, 0.01);
  EXPECT_NEAR(student_t_95(9), 2.262, 0.002);
  EXPECT_NEAR(student_t_95(100000), 1.960, 0.001);
}

}  // namespace
}  // namespace tandem
