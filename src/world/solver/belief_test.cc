// The solver's belief is honest: the truth agrees with a drawn hidden state as often as two drawn ones agree with each
// other. (If beliefs are right, truth and draws come from one distribution.)
#include "world/solver/belief.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "world/solver/models.h"
#include "world/web_agents.h"

namespace tandem {
namespace {

struct Agreement {
  double with_truth = 0, among_draws = 0;
  int64_t count = 0;
  template <typename T>
  void see(const T& truth, const T& a, const T& b) {
    with_truth += truth == a ? 1 : 0;
    among_draws += a == b ? 1 : 0;
    ++count;
  }
  // `most`: how far the two may be apart, as a share of 1.
  void expect_honest(const char* what, double most) const {
    EXPECT_NEAR(with_truth / static_cast<double>(count), among_draws / static_cast<double>(count), most) << what;
  }
};

// Plays the tuned family's starting policy and calls look(truth, draw, other draw) at each decision.
template <class Env, class Look>
void follow(int episodes, const Look& look) {
  for (int episode = 0; episode < episodes; ++episode) {
    typename Env::State state{};
    typename Env::Seen before{};
    typename Model<Env>::Belief belief;
    Draws first = Draws::of({11, 0, 0, 0}, episode);
    Env::reset(state, first);
    int action = 0;
    for (uint64_t time = 1;; ++time) {
      if (time == 1)
        belief.begin(state.seen);
      else
        belief.after(before, action, state.seen);
      typename Env::Hidden a{}, b{};
      Draws one = Draws::of({11, time, 0, 2}, episode), two = Draws::of({11, time, 0, 3}, episode);
      belief.sample(state.seen, a, one);
      belief.sample(state.seen, b, two);
      look(state.hidden, a, b);
      before = state.seen;
      Draws any = Draws::of({11, time, 0, 4}, episode);
      action = any.chance(0.2f) ? any.below(kActions) : Model<Env>::act(state.seen, Model<Env>::start());
      Draws draws = Draws::of({11, time, 0, 1}, episode);
      if (Env::step(state, action, draws).done != 0) break;
    }
  }
}

template <class Env>
void expect_honest_product(double most) {
  double truth = 0, drawn = 0;
  Agreement rot;
  follow<Env>(250, [&](const auto& hidden, const auto& a, const auto& b) {
    truth += whole_defects(hidden.product);
    drawn += whole_defects(a.product);
    for (int f = 0; f < kFeatures; ++f) rot.see(hidden.product.rot[f], a.product.rot[f], b.product.rot[f]);
  });
  EXPECT_NEAR(drawn / truth, 1.0, most);
  rot.expect_honest("rot", 0.03);
}

// Nothing of the true hidden state may reach the planner: a draw overwrites all of it.
template <class Env>
void expect_whole_draw() {
  typename Env::State state{};
  Draws first = Draws::of({12, 0, 0, 0}, 0);
  Env::reset(state, first);
  typename Model<Env>::Belief belief;
  belief.begin(state.seen);
  typename Env::Hidden a, b;
  std::memset(&a, 0x55, sizeof(a));
  std::memset(&b, 0x2A, sizeof(b));
  Draws one = Draws::of({12, 1, 0, 0}, 0), two = one;
  belief.sample(state.seen, a, one);
  belief.sample(state.seen, b, two);
  EXPECT_EQ(0, std::memcmp(&a, &b, sizeof(a)));
}

TEST(Belief, DrawsEveryHiddenNumber) {
  for (int agent = 0; agent < kWebAgents; ++agent)
    with_web_environment(agent, [](auto environment) { expect_whole_draw<decltype(environment)>(); });
}

TEST(Belief, KnowsHowManyDefectsAreLeft) {
  expect_honest_product<RequirementsEnvironment>(0.15);
  expect_honest_product<GenerationEnvironment>(0.15);
  expect_honest_product<ExecutionEnvironment>(0.15);
  expect_honest_product<AnalysisEnvironment>(0.15);
  expect_honest_product<EvolutionEnvironment>(0.15);
}

TEST(Belief, KnowsHowSureItIsOfACause) {
  const auto look_with = [](Agreement& cause, Agreement& habit) {
    return [&](const auto& hidden, const auto& a, const auto& b) {
      cause.see(hidden.item.cause, a.item.cause, b.item.cause);
      for (int f = 0; f < kFeatures; ++f) habit.see(hidden.item.habit[f], a.item.habit[f], b.item.habit[f]);
    };
  };
  Agreement cause, habit, failure, failure_habit;
  follow<GenerationEnvironment>(400, look_with(cause, habit));
  follow<AnalysisEnvironment>(400, look_with(failure, failure_habit));
  cause.expect_honest("cause", 0.02);
  habit.expect_honest("habit", 0.02);
  failure.expect_honest("cause of a failure", 0.02);
}

TEST(Belief, KnowsHowSureItIsOfAmbiguityWeatherNoiseAndSickness) {
  Agreement ambiguous, weather, regime, sick;
  follow<RequirementsEnvironment>(300, [&](const auto& hidden, const auto& a, const auto& b) {
    ambiguous.see(hidden.ambiguous, a.ambiguous, b.ambiguous);
  });
  follow<ExecutionEnvironment>(300, [&](const auto& hidden, const auto& a, const auto& b) {
    weather.see(hidden.weather, a.weather, b.weather);
  });
  follow<ObservationEnvironment>(300, [&](const auto& hidden, const auto& a, const auto& b) {
    regime.see(hidden.regime, a.regime, b.regime);
    for (int f = 0; f < kFeatures; ++f) sick.see(hidden.sick[f], a.sick[f], b.sick[f]);
  });
  ambiguous.expect_honest("ambiguous", 0.02);
  weather.expect_honest("weather", 0.02);
  regime.expect_honest("noise", 0.02);
  sick.expect_honest("sick", 0.02);
  EXPECT_GT(weather.with_truth / static_cast<double>(weather.count), 0.55);  // a third by chance
  EXPECT_GT(regime.with_truth / static_cast<double>(regime.count), 0.75);
}

}  // namespace
}  // namespace tandem
