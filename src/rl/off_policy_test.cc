#include "rl/off_policy.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

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
  EXPECT_LE(held, trials * 99 / 100) << held << " of " << trials << ": absurdly wide";
}

TEST(OffPolicy, CopiesOfEpisodesMakeNoIntervalNarrower) {
  const LoggedEpisodes once = two_states(40, 3);
  LoggedEpisodes named = once, copied;
  copied.state_size = 1;
  copied.action_count = 2;
  for (int64_t e = 0; e < once.episodes(); ++e) named.ids[static_cast<size_t>(e)] = std::to_string(100 + e);
  for (int copy = 0; copy < 4; ++copy)
    for (int64_t e = 0; e < named.episodes(); ++e) copied.add_episode(named, e);
  const auto width = [](const LoggedEpisodes& log) {
    const FittedQEvaluation evaluation(log, kGamma);
    const ValueChange change = value_change(evaluation.value(always(0)), evaluation.value(always(1)));
    return change.high - change.low;
  };
  EXPECT_NEAR(width(copied) / width(once), 1, 0.15) << "four copies as four episodes: half as wide";
  EXPECT_EQ(copied.different(), 40);
}

TEST(OffPolicy, ABoundedPartOfManyEpisodesIsAFunctionOfTheirContentsAlone) {
  LoggedEpisodes log = two_states(2000, 5), turned;
  turned.state_size = 1;
  turned.action_count = 2;
  for (int64_t e = 0; e < log.episodes(); ++e)
    log.ids[static_cast<size_t>(e)] =
        std::to_string(random_below({9, 0, 0, 6}, static_cast<uint64_t>(e), 1'000'000'000));
  for (int64_t e = log.episodes(); e-- > 0;) turned.add_episode(log, e);
  const LoggedEpisodes part = log.at_most(500), same = turned.at_most(500);
  EXPECT_LE(part.rows(), 500);
  EXPECT_GT(part.rows(), 450);
  EXPECT_EQ(std::set(part.ids.begin(), part.ids.end()), std::set(same.ids.begin(), same.ids.end()));
  EXPECT_EQ(log.at_most(log.rows()).rows(), log.rows());
  EXPECT_EQ(log.at_most(1).episodes(), 1) << "one at least";
}

// A walk over 30 places that pays by place, with noise; the state shows the place and as much noise again as asked for.
// Actions: left, right, stay; a step goes wrong in a tenth of cases and is not taken in another. The episode ends after
// each step with probability 0.1. Played at random.
struct Walk {
  static constexpr int kPlaces = 30;
  int64_t noise = 0;

  static double pays(int place, int action) { return std::sin(0.21 * place) - (action == 2 ? 0 : 0.1); }
  static int after(int place, int action, double luck) {
    const int step = action == 2 ? 0 : action == 1 ? 1 : -1;
    return std::clamp(place + (luck < 0.1 ? 0 : luck < 0.2 ? -step : step), 0, kPlaces - 1);
  }
  // 0: always left. 1: always right. 2: to where it pays most.
  static int chosen(int policy, int place) { return policy < 2 ? policy : place < 8 ? 1 : place > 8 ? 0 : 2; }

  // By sweeps over the places themselves.
  static double truth(int policy) {
    std::vector<double> value(kPlaces, 0);
    for (int sweep = 0; sweep < 500; ++sweep) {
      const std::vector<double> before = value;
      for (int place = 0; place < kPlaces; ++place) {
        const int action = chosen(policy, place);
        const auto next = [&](double luck) { return before[static_cast<size_t>(after(place, action, luck))]; };
        value[static_cast<size_t>(place)] =
            pays(place, action) + 0.9 * kGamma * (0.1 * next(0.05) + 0.1 * next(0.15) + 0.8 * next(0.5));
      }
    }
    double sum = 0;
    for (const double of_place : value) sum += of_place / kPlaces;
    return sum;
  }

  LoggedEpisodes play(int64_t episodes, uint64_t seed) const {
    LoggedEpisodes log;
    log.state_size = 1 + noise;
    log.action_count = 3;
    uint64_t draw = 0;
    const auto luck = [&] { return static_cast<double>(random_uniform({seed, 0, 0, 1}, draw++)); };
    const auto seen = [&](int place) {
      std::vector<float> state{static_cast<float>(place) / (kPlaces - 1)};
      for (int64_t i = 0; i < noise; ++i) state.push_back(static_cast<float>(luck()));
      return state;
    };
    for (int64_t e = 0; e < episodes; ++e) {
      log.begin_episode();
      int place = static_cast<int>(luck() * kPlaces);
      std::vector<float> state = seen(place);
      for (bool over = false; !over;) {
        const int action = static_cast<int>(luck() * 3), next = after(place, action, luck());
        over = luck() < 0.1;
        const std::vector<float> next_state = seen(next);
        const float chance = 0.3f * random_normal({seed, 0, 0, 3}, draw++);
        log.add(state, action, static_cast<float>(pays(place, action)) + chance, next_state, over);
        place = next;
        state = next_state;
      }
    }
    return log;
  }

  StatePolicy policy(int which) const {
    return [which, width = 1 + noise](const float* states, int64_t n, int32_t* actions) {
      for (int64_t i = 0; i < n; ++i)
        actions[i] = chosen(which, static_cast<int>(std::lround(states[i * width] * (kPlaces - 1))));
    };
  }
};

struct Coverage {
  int held = 0, nearer = 0, trials = 0;  // nearer: the interval lies between 0 and the truth
  double width_in_spreads = 0;           // half width by 1.96 standard deviations of the estimates
};

Coverage coverage(const Walk& walk, int64_t episodes, int before, int after, int trials) {
  const double truth = Walk::truth(after) - Walk::truth(before);
  Coverage out{.trials = trials};
  double half_widths = 0, sum = 0, squares = 0;
  for (int trial = 1; trial <= trials; ++trial) {
    const LoggedEpisodes log = walk.play(episodes, static_cast<uint64_t>(trial));
    const FittedQEvaluation evaluation(log, kGamma);
    const ValueChange change =
        value_change(evaluation.value(walk.policy(before)), evaluation.value(walk.policy(after)));
    const bool held = change.low <= truth && truth <= change.high;
    out.held += held ? 1 : 0;
    out.nearer += !held && (truth > 0 ? change.high < truth : change.low > truth) ? 1 : 0;
    half_widths += (change.high - change.low) / 2;
    sum += change.change;
    squares += change.change * change.change;
  }
  const double n = trials, spread = std::sqrt((squares - sum * sum / n) / (n - 1));
  out.width_in_spreads = half_widths / n / (1.959964 * spread);
  return out;
}

// Between states and values stand trees here: thirty places, few rows of each. The interval is one of chance, and as
// wide as chance makes the estimate vary. It is no interval of the truth, which is inside in as few as 12 of 60 trials:
// smoothing makes policies look alike, so the truth is further from 0. No bound on that number is promised.
TEST(OffPolicy, WithTreesOverManyStatesTheIntervalIsAsWideAsChanceAndErrsTowardsNoChange) {
  for (const Walk& walk : {Walk{0}, Walk{3}}) {
    for (const auto& [before, after] : {std::pair{0, 1}, {0, 2}, {1, 2}}) {
      const Coverage found = coverage(walk, 30, before, after, 60);
      const std::string which =
          fmt::format("{} to {}, {} numbers of noise: {} of {} held, {} nearer 0, width {:.2f}", before, after,
                      walk.noise, found.held, found.trials, found.nearer, found.width_in_spreads);
      EXPECT_GT(found.width_in_spreads, 0.55) << which;
      EXPECT_LT(found.width_in_spreads, 1.5) << which;
      EXPECT_GE(found.held + found.nearer, found.trials * 90 / 100) << which;
    }
  }
  const Coverage alike = coverage(Walk{0}, 30, 0, 1, 60);  // both policies are smoothed alike
  EXPECT_GE(alike.held, alike.trials * 88 / 100);
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
