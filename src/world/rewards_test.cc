// Every term of every reward, alone: a situation in which it is the one thing that differs, and the sign it must have.
#include <gtest/gtest.h>

#include "world/test_states.h"

namespace tandem {
namespace {

// `more` shows more of `term` than `less` and the other terms are equal; then its reward is higher by exactly the
// term's share if the term is good, lower if it is bad.
template <class Env>
void expect_sign(const StepResult& more, const StepResult& less, int term, int sign) {
  EXPECT_GT(more.terms[term], less.terms[term]);
  for (int i = 0; i < kTerms; ++i) {
    if (i == term) continue;
    EXPECT_EQ(more.terms[i], less.terms[i]) << "term " << i;
  }
  const TermWeights w = Env::weights();
  EXPECT_GT(sign * w.weight[term], 0);
  EXPECT_GT(sign * (more.reward - less.reward), 0);
  EXPECT_NEAR(more.reward - less.reward, w.scale * w.weight[term] * (more.terms[term] - less.terms[term]), 1e-5);
}

template <class Env>
StepResult decided(typename Env::State s, int action, uint64_t luck = 1) {
  return decide<Env>(s, action, luck);
}

TEST(RequirementsReward, ScenariosAreGood) {
  auto s = quiet_state<RequirementsEnvironment>();
  s.seen.product.complexity[s.seen.item.feature] = -0.5f;  // no edge cases, so that scenarios alone differ
  s.hidden.item.cause = 2;
  expect_sign<RequirementsEnvironment>(decided<RequirementsEnvironment>(s, 4), decided<RequirementsEnvironment>(s, 6),
                                       0, +1);
}
TEST(RequirementsReward, EdgesAreGood) {
  auto with = quiet_state<RequirementsEnvironment>(), without = with;
  with.hidden.item.cause = without.hidden.item.cause = 2;
  with.seen.product.complexity[with.seen.item.feature] = 2.0f;
  without.seen.product.complexity[without.seen.item.feature] = -0.5f;
  expect_sign<RequirementsEnvironment>(decided<RequirementsEnvironment>(with, 4),
                                       decided<RequirementsEnvironment>(without, 4), 1, +1);
}
TEST(RequirementsReward, ResolvedAmbiguityIsGood) {
  auto clear = quiet_state<RequirementsEnvironment>();
  auto vague = clear;
  vague.hidden.ambiguous = 1;
  clear.hidden.ambiguous = 0;
  expect_sign<RequirementsEnvironment>(decided<RequirementsEnvironment>(vague, 5),
                                       decided<RequirementsEnvironment>(clear, 5), 2, +1);
  EXPECT_EQ(decided<RequirementsEnvironment>(vague, 4).terms[2], 0) << "a quick reading resolves nothing";
}
TEST(RequirementsReward, MissedIsBad) {
  const auto s = quiet_state<RequirementsEnvironment>();
  expect_sign<RequirementsEnvironment>(decided<RequirementsEnvironment>(rotten<RequirementsEnvironment>(s), 4),
                                       decided<RequirementsEnvironment>(s, 4), 3, -1);
}

TEST(GenerationReward, QualityIsGoodAndAnEscapeTakesItBack) {
  auto s = quiet_state<GenerationEnvironment>();
  s.hidden.item.cause = 1;
  auto other = s;
  other.hidden.item.cause = 3;
  expect_sign<GenerationEnvironment>(decided<GenerationEnvironment>(s, 2), decided<GenerationEnvironment>(other, 2), 0,
                                     +1);
  expect_sign<GenerationEnvironment>(decided<GenerationEnvironment>(s, 2),
                                     decided<GenerationEnvironment>(rotten<GenerationEnvironment>(s), 2), 0, +1);
}
TEST(GenerationReward, MaintainabilityIsGood) {
  auto s = quiet_state<GenerationEnvironment>();
  s.hidden.item.cause = 2;  // neither of the two types below fits
  expect_sign<GenerationEnvironment>(decided<GenerationEnvironment>(s, 0), decided<GenerationEnvironment>(s, 8), 1, +1);
}
TEST(GenerationReward, ReuseIsGood) {
  auto s = quiet_state<GenerationEnvironment>();
  s.seen.fixtures[1] = 0.9f;
  const StepResult reused = decided<GenerationEnvironment>(s, 3), bespoke = decided<GenerationEnvironment>(s, 2);
  EXPECT_GT(reused.terms[2], 0);
  EXPECT_EQ(bespoke.terms[2], 0);
  EXPECT_GT(GenerationEnvironment::weights().weight[2], 0);
  EXPECT_GT(reused.reward, bespoke.reward);
}
TEST(GenerationReward, SmellsAreBad) {
  auto s = quiet_state<GenerationEnvironment>();
  // The same test; only the luck with smells differs, which is drawn first.
  StepResult more = decided<GenerationEnvironment>(s, 2, 1), less = more;
  for (uint64_t luck = 2; luck < 30; ++luck) {
    const StepResult other = decided<GenerationEnvironment>(s, 2, luck);
    if (other.terms[3] > more.terms[3]) more = other;
    if (other.terms[3] < less.terms[3]) less = other;
  }
  expect_sign<GenerationEnvironment>(more, less, 3, -1);
}

TEST(ExecutionReward, ParallelAndUtilisationAndTimeAreGood) {
  auto s = quiet_state<ExecutionEnvironment>();
  s.hidden.weather = 0;
  s.seen.heat = -0.2f;  // no job fails
  for (float& w : s.seen.waiting) w = 6;
  for (float& a : s.seen.age) a = -1.6f;  // no time is saved
  const StepResult wide = decided<ExecutionEnvironment>(s, 1, 3), narrow = decided<ExecutionEnvironment>(s, 0, 3);
  ASSERT_EQ(wide.terms[3], narrow.terms[3]);
  expect_sign<ExecutionEnvironment>(wide, narrow, 0, +1);

  auto late = s;
  late.seen.age[0] = 8;
  expect_sign<ExecutionEnvironment>(decided<ExecutionEnvironment>(late, 0, 3), narrow, 2, +1);

  auto few = s;
  few.seen.waiting[0] = 3;  // three jobs: narrow runs are full, wide ones half empty
  expect_sign<ExecutionEnvironment>(decided<ExecutionEnvironment>(few, 0, 3), decided<ExecutionEnvironment>(few, 1, 3),
                                    1, +1);
}
TEST(ExecutionReward, FailedIsBad) {
  const auto s = quiet_state<ExecutionEnvironment>();
  expect_sign<ExecutionEnvironment>(decided<ExecutionEnvironment>(rotten<ExecutionEnvironment>(s), 0),
                                    decided<ExecutionEnvironment>(s, 0), 3, -1);
  auto full = s;
  full.seen.waiting[4] = ExecutionEnvironment::kRoom + 6;  // what has no room is dropped
  expect_sign<ExecutionEnvironment>(decided<ExecutionEnvironment>(full, 0), decided<ExecutionEnvironment>(s, 0), 3, -1);
}

TEST(ObservationReward, AccuracyIsGood) {
  auto s = quiet_state<ObservationEnvironment>();
  s.hidden.regime = 0;
  s.hidden.sick[0] = 2;
  auto hidden_one = s;  // a second sickness below the threshold: the alert is as precise, the judgement is not
  hidden_one.hidden.sick[1] = 1;
  s.hidden.sick[1] = 0;
  bool found = false;
  for (uint64_t luck = 1; luck < 200 && !found; ++luck) {
    const StepResult one = decided<ObservationEnvironment>(s, 4, luck),
                     two = decided<ObservationEnvironment>(hidden_one, 4, luck);
    if (one.terms[0] != 1.0f || two.terms[0] != 0.5f || two.terms[1] != 1.0f) continue;
    expect_sign<ObservationEnvironment>(one, two, 0, +1);
    found = true;
  }
  EXPECT_TRUE(found);
}
TEST(ObservationReward, PrecisionIsGoodAndFalseAlertsAreBad) {
  auto s = quiet_state<ObservationEnvironment>();
  s.hidden.regime = 2;
  s.hidden.sick[0] = 2;
  StepResult clean{}, noisy{};
  for (uint64_t luck = 1; luck < 300; ++luck) {
    const StepResult r = decided<ObservationEnvironment>(s, 4, luck);
    if (r.terms[1] == 1.0f) clean = r;
    if (r.terms[1] == 0.5f && r.terms[2] == 1.0f) noisy = r;
  }
  ASSERT_EQ(clean.terms[1], 1.0f);
  ASSERT_EQ(noisy.terms[2], 1.0f);
  const TermWeights w = ObservationEnvironment::weights();
  EXPECT_GT(w.weight[0], 0);
  EXPECT_GT(w.weight[1], 0);
  EXPECT_LT(w.weight[2], 0);
  EXPECT_GT(clean.reward, noisy.reward);

  auto healthy = s;  // nobody is sick: alerts can only be false
  healthy.hidden.sick[0] = 0;
  const StepResult silent = decided<ObservationEnvironment>(healthy, 9, 7);
  StepResult loud = silent;
  for (uint64_t luck = 7; loud.terms[2] == 0; ++luck) loud = decided<ObservationEnvironment>(healthy, 0, luck);
  expect_sign<ObservationEnvironment>(loud, silent, 2, -1);
}
TEST(ObservationReward, MissedIsBad) {
  auto s = quiet_state<ObservationEnvironment>();
  s.hidden.regime = 0;
  auto old = s;
  s.hidden.sick[0] = 1;
  old.hidden.sick[0] = ObservationEnvironment::kLongest - 1;  // the users find it in the next window
  old.seen.trust = s.seen.trust = 0.0f;                       // nobody acts on alerts
  bool found = false;
  for (uint64_t luck = 1; luck < 100 && !found; ++luck) {
    const StepResult missed = decided<ObservationEnvironment>(old, 8, luck),
                     not_yet = decided<ObservationEnvironment>(s, 8, luck);
    if (missed.terms[0] != not_yet.terms[0]) continue;
    expect_sign<ObservationEnvironment>(missed, not_yet, 3, -1);
    found = true;
  }
  EXPECT_TRUE(found);
}

TEST(AnalysisReward, RightCausesAreGoodAndWrongOnesBad) {
  auto s = quiet_state<AnalysisEnvironment>();
  s.hidden.item.cause = 1;
  s.seen.trust = 0.0f;  // nobody listens, so that `accepted` is left out
  const StepResult right = decided<AnalysisEnvironment>(s, 3), wrong = decided<AnalysisEnvironment>(s, 5);
  EXPECT_EQ(right.terms[0], 1);
  EXPECT_EQ(right.terms[3], 0);
  EXPECT_EQ(wrong.terms[0], 0);
  EXPECT_EQ(wrong.terms[3], 1);
  const StepResult probe = decided<AnalysisEnvironment>(s, 2);
  expect_sign<AnalysisEnvironment>(right, probe, 0, +1);
  expect_sign<AnalysisEnvironment>(wrong, probe, 3, -1);
}
TEST(AnalysisReward, PatternsAreGood) {
  auto s = quiet_state<AnalysisEnvironment>();
  s.hidden.item.cause = 1;
  auto known = s;
  known.seen.item.closed[s.seen.item.feature][1] = 1;
  expect_sign<AnalysisEnvironment>(decided<AnalysisEnvironment>(known, 3), decided<AnalysisEnvironment>(s, 3), 1, +1);
  EXPECT_EQ(decided<AnalysisEnvironment>(known, 5).terms[1], 0) << "a wrong conclusion is no pattern";
}
TEST(AnalysisReward, AcceptedIsGood) {
  auto trusted = quiet_state<AnalysisEnvironment>();
  trusted.hidden.item.cause = 1;
  auto doubted = trusted;
  trusted.seen.trust = 1.0f;
  doubted.seen.trust = 0.0f;
  expect_sign<AnalysisEnvironment>(decided<AnalysisEnvironment>(trusted, 3), decided<AnalysisEnvironment>(doubted, 3),
                                   2, +1);
}

TEST(EvolutionReward, HealedCoverageAndOptimisedAreGood) {
  auto s = quiet_state<EvolutionEnvironment>();
  for (float& b : s.seen.brittle) b = 0.0f;
  for (int answer = 0; answer < kCauses; ++answer) {
    s.hidden.item.cause = answer;
    auto other = s;
    other.hidden.item.cause = (answer + 1) % kCauses;
    const StepResult right = decided<EvolutionEnvironment>(s, 2 * answer + 1),
                     wrong = decided<EvolutionEnvironment>(other, 2 * answer + 1);
    for (int term = 0; term < 3; ++term) {
      EXPECT_GT(right.terms[term], 0);
      EXPECT_EQ(wrong.terms[term], 0);
      EXPECT_GT(EvolutionEnvironment::weights().weight[term], 0);
    }
    EXPECT_EQ(right.terms[3], wrong.terms[3]);
    EXPECT_GT(right.reward, wrong.reward);
    // Lasting work is worth more than light work, in all three and in the reward.
    const StepResult light = decided<EvolutionEnvironment>(s, 2 * answer);
    for (int term = 0; term < 3; ++term) EXPECT_GT(right.terms[term], light.terms[term]);
  }
}
TEST(EvolutionReward, BrokenIsBad) {
  const auto s = quiet_state<EvolutionEnvironment>();
  expect_sign<EvolutionEnvironment>(decided<EvolutionEnvironment>(rotten<EvolutionEnvironment>(s), 1),
                                    decided<EvolutionEnvironment>(s, 1), 3, -1);
}

TEST(Rewards, WeightsAreTheGuidesWithTheSignsPutRight) {
  const float expected[kWebAgents][kTerms] = {{2, 5, 3, -10},    {10, 5, 3, -2},   {10, 5, 3, -5},
                                              {15, 10, -5, -15}, {20, 10, 5, -15}, {15, 10, 5, -20}};
  for (int agent = 0; agent < kWebAgents; ++agent)
    with_web_environment(agent, [&](auto environment) {
      for (int i = 0; i < kTerms; ++i) EXPECT_EQ(decltype(environment)::weights().weight[i], expected[agent][i]);
    });
}

}  // namespace
}  // namespace tandem
