#include "rl/play.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tandem {
namespace {

// A point on a line that actions move; its reward is how near to 0 it is. Both numbers of an action count.
class LineEnvironment : public Environment {
 public:
  int64_t observation_size() const override { return 1; }
  int64_t actions() const override { return 0; }
  int64_t action_size() const override { return 2; }
  int64_t state_bytes() const override { return sizeof(Point); }
  int64_t max_episode_steps() const override { return 5; }
  void reset(std::byte* states, int64_t n, const RandomKey& key, const Outcome* only_ended) const override {
    for (int64_t i = 0; i < n; ++i)
      if (!only_ended || only_ended[i].end != End::kNone)
        reinterpret_cast<Point*>(states)[i] = {static_cast<float>(random_uniform(key, static_cast<uint64_t>(i))) * 0.5f,
                                               0};
  }
  void observe(const std::byte* states, float* out, int64_t n) const override {
    for (int64_t i = 0; i < n; ++i) out[i] = reinterpret_cast<const Point*>(states)[i].at;
  }
  void step(std::byte*, const int32_t*, Outcome*, int64_t, const RandomKey&) const override {
    throw std::logic_error("this environment has no discrete actions");
  }
  void step_continuous(std::byte* states, const float* actions, Outcome* out, int64_t n,
                       const RandomKey&) const override {
    for (int64_t i = 0; i < n; ++i) {
      Point& p = reinterpret_cast<Point*>(states)[i];
      p.at += std::clamp(actions[2 * i], -1.0f, 1.0f) - std::clamp(actions[2 * i + 1], -1.0f, 1.0f);
      out[i] = {.reward = -std::abs(p.at), .end = ++p.time == 5 ? End::kTruncated : End::kNone};
    }
  }

 private:
  struct Point {
    float at;
    int32_t time;
  };
};

TEST(Play, StepsContinuousActionsAndShowsThemToTheWatcher) {
  const LineEnvironment line;
  const Policy back = [&](const std::byte* states, int64_t n, uint64_t, const ChosenActions& actions) {
    std::vector<float> seen(static_cast<size_t>(n));
    line.observe(states, seen.data(), n);
    for (int64_t i = 0; i < n; ++i) {
      actions.continuous[2 * i] = -seen[static_cast<size_t>(i)];
      actions.continuous[2 * i + 1] = 0;
    }
  };
  int64_t watched = 0;
  const Evaluation result =
      play(line, back, 40, 3,
           [&](int64_t, const float* before, const TakenAction& action, const Outcome&, const float* after) {
             ++watched;
             ASSERT_EQ(action.continuous.size(), 2u);
             EXPECT_EQ(action.continuous[0], -*before);
             EXPECT_EQ(*after, 0);
           });
  EXPECT_EQ(result.mean, 0);
  EXPECT_EQ(watched, 40 * 5);
}

TEST(Play, RandomContinuousActionsFillTheWholeRangeWithTheSameNumbersEachTime) {
  const LineEnvironment line;
  std::vector<float> first(2000), again(2000), later(2000);
  random_play(line, 7)(nullptr, 1000, 4, {nullptr, first.data()});
  random_play(line, 7)(nullptr, 1000, 4, {nullptr, again.data()});
  random_play(line, 7)(nullptr, 1000, 5, {nullptr, later.data()});
  EXPECT_EQ(first, again);
  EXPECT_NE(first, later);
  const auto [least, most] = std::ranges::minmax(first);
  EXPECT_GE(least, -1);
  EXPECT_LT(least, -0.98);
  EXPECT_LE(most, 1);
  EXPECT_GT(most, 0.98);
  EXPECT_LT(play(line, random_play(line, 7), 100, 3).mean, -1);
}

}  // namespace
}  // namespace tandem
