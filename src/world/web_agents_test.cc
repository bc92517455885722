#include "world/web_agents.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tandem {
namespace {

struct Batch {
  Batch(int32_t agent, int64_t n, uint64_t seed, int64_t first = 0)
      : agent(agent), seed(seed), first(first), states(n), actions(n), results(n), seen(n * kObservation) {
    reset_web(agent, states.data(), n, {seed, 0, 0, 0}, first);
  }
  int64_t size() const { return static_cast<int64_t>(states.size()); }
  void observe() { observe_web(agent, states.data(), seen.data(), size()); }
  void step_at_random(uint64_t step) {
    for (int64_t i = 0; i < size(); ++i) {
      Draws draws = Draws::of({seed, step, 0, 2}, first + i);
      actions[i] = random_policy(draws);
    }
    step_web(agent, states.data(), actions.data(), results.data(), size(), {seed, step, 0, 1}, first);
  }
  void restart(uint64_t step) { reset_web(agent, states.data(), size(), {seed, step, 0, 0}, first, results.data()); }

  int32_t agent;
  uint64_t seed;
  int64_t first;
  std::vector<WebTestState> states;
  std::vector<int32_t> actions;
  std::vector<StepResult> results;
  std::vector<float> seen;
};

class EachAgent : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(WebAgents, EachAgent, testing::Range(0, kWebAgents),
                         [](const auto& info) { return std::string(kWebAgentTable[info.param].name); });

TEST_P(EachAgent, ObservationsAreFiniteAndAboutOne) {
  Batch batch(GetParam(), 64, 3);
  double sum[kObservation] = {}, square[kObservation] = {}, most = 0;
  int64_t count = 0;
  for (uint64_t step = 1; step <= 120; ++step) {
    batch.observe();
    for (int64_t i = 0; i < batch.size(); ++i, ++count)
      for (int k = 0; k < kObservation; ++k) {
        const double x = batch.seen[i * kObservation + k];
        ASSERT_TRUE(std::isfinite(x)) << k;
        sum[k] += x;
        square[k] += x * x;
        most = std::max(most, std::abs(x));
      }
    batch.step_at_random(step);
    batch.restart(step);
  }
  EXPECT_LT(most, 8.0);
  for (int k = 0; k < kObservation; ++k) {
    const double mean = sum[k] / count;
    EXPECT_LT(std::abs(mean), 2.0) << k;
    EXPECT_LT(std::sqrt(square[k] / count - mean * mean), 1.6) << k;
  }
}

TEST_P(EachAgent, RewardsAreAboutOneAndTheSumOfTheirTerms) {
  Batch batch(GetParam(), 64, 4);
  double square = 0;
  int64_t count = 0;
  const TermWeights w =
      with_web_environment(GetParam(), [](auto environment) { return decltype(environment)::weights(); });
  for (uint64_t step = 1; step <= 120; ++step) {
    batch.step_at_random(step);
    for (const StepResult& r : batch.results) {
      double sum = 0;
      for (int t = 0; t < kTerms; ++t) sum += w.weight[t] * r.terms[t];
      EXPECT_NEAR(r.reward, w.scale * sum, 1e-4);
      square += r.reward * r.reward;
      ++count;
    }
    batch.restart(step);
  }
  EXPECT_GT(std::sqrt(square / count), 0.2);
  EXPECT_LT(std::sqrt(square / count), 2.5);
}

TEST_P(EachAgent, EpisodesEndInTime) {
  Batch batch(GetParam(), 16, 5);
  std::vector<int> ended(16, 0);
  for (int step = 1; step <= kWebAgentTable[GetParam()].length; ++step) {
    batch.step_at_random(step);
    for (int i = 0; i < 16; ++i)
      if (batch.results[i].done != 0 && ended[i] == 0) ended[i] = step;
  }
  for (int e : ended) {
    EXPECT_GE(e, 20);
    EXPECT_LE(e, 64);
  }
}

TEST_P(EachAgent, AnEnvironmentDependsOnItsNumberAlone) {
  Batch all(GetParam(), 12, 6), tail(GetParam(), 5, 6, 7);
  for (uint64_t step = 1; step <= 70; ++step) {
    all.step_at_random(step);
    tail.step_at_random(step);
    all.restart(step);
    tail.restart(step);
  }
  EXPECT_EQ(0, std::memcmp(&all.states[7], &tail.states[0], 5 * sizeof(WebTestState)));
}

// The type says so: observe() gets `Seen`. This shows that `Hidden` is nothing that a reset could leave in there.
TEST_P(EachAgent, TheObservationDoesNotDependOnTheHiddenState) {
  Batch batch(GetParam(), 8, 7);
  batch.observe();
  const std::vector<float> before = batch.seen;
  with_web_environment(GetParam(), [&](auto environment) {
    for (WebTestState& s : batch.states)
      std::memset(&state_of(s, environment).hidden, 0x11, sizeof(state_of(s, environment).hidden));
  });
  batch.observe();
  EXPECT_EQ(before, batch.seen);
}

TEST_P(EachAgent, ActionsOutOfRangeAreTheNearest) {
  for (const auto& [asked, meant] : {std::pair(-3, 0), std::pair(12, 9)}) {
    Batch a(GetParam(), 1, 8), b(GetParam(), 1, 8);
    a.actions[0] = asked;
    b.actions[0] = meant;
    step_web(GetParam(), a.states.data(), a.actions.data(), a.results.data(), 1, {1, 1, 0, 1});
    step_web(GetParam(), b.states.data(), b.actions.data(), b.results.data(), 1, {1, 1, 0, 1});
    EXPECT_EQ(a.results[0].reward, b.results[0].reward);
  }
}

// Environments on a GPU read numbers that were drawn in advance; beyond these they draw by themselves.
TEST(Draws, DrawnAheadAreTheSameAndGoOnBeyond) {
  const RandomKey key{.seed = 3, .step = 5, .shard = 7, .site = 9};
  constexpr int64_t kEnvironment = 11;
  constexpr uint32_t kAhead = 8;
  DrawnAhead ahead{.seed = key.seed,
                   .step = key.step,
                   .first = Draws::of(key, kEnvironment).next,
                   .shard = key.shard,
                   .site = key.site};
  for (uint32_t i = 0; i < kAhead; ++i) {
    ahead.word[i] = random_u32(key, ahead.first + i);
    ahead.normal[i] = random_normal(key, ahead.first + i);
  }
  Draws one = Draws::of(key, kEnvironment);
  DrawsAhead other(ahead, kAhead);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(one.word(), other.word()) << i;
    EXPECT_EQ(one.normal(), other.normal()) << i;
    EXPECT_EQ(one.between(-1, 3), other.between(-1, 3)) << i;
    EXPECT_EQ(one.below(17), other.below(17)) << i;
  }
}

TEST(WebAgents, AreFoundByName) {
  for (int32_t a = 0; a < kWebAgents; ++a) EXPECT_EQ(web_agent_of(kWebAgentTable[a].name), a);
  EXPECT_EQ(web_agent_of("analyst"), -1);
}

}  // namespace
}  // namespace tandem
