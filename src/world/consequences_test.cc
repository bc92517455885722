// What a decision costs later: each test compares two pasts that differ in one decision, over many throws of the dice.
#include <gtest/gtest.h>

#include "world/test_states.h"

namespace tandem {
namespace {

constexpr int kThrows = 400;

TEST(Consequences, AMisreadRequirementIsFoundLater) {
  double at_once = 0, after_misreading = 0, after_reading = 0;
  const auto right = [](const RequirementsEnvironment::State& s) { return 2 * s.hidden.item.cause; };
  for (uint64_t luck = 1; luck <= kThrows; ++luck) {
    auto misread = quiet_state<RequirementsEnvironment>(luck);
    misread.hidden.ambiguous = 1;
    misread.hidden.item.cause = 2;
    auto read = misread;
    at_once += decide<RequirementsEnvironment>(misread, 4 + 4, luck).terms[3];
    decide<RequirementsEnvironment>(read, 4 + 1, luck);
    after_misreading += term_later<RequirementsEnvironment>(misread, 3, 20, luck, right);
    after_reading += term_later<RequirementsEnvironment>(read, 3, 20, luck, right);
  }
  EXPECT_LT(at_once, 0.05 * kThrows);
  EXPECT_GT(after_misreading - after_reading, 0.2 * kThrows);
}

TEST(Consequences, SmellsSpoilLaterTests) {
  double clean = 0, indebted = 0;
  const auto right = [](const GenerationEnvironment::State& s) { return 2 * s.hidden.item.cause; };
  for (uint64_t luck = 1; luck <= kThrows; ++luck) {
    auto bespoke = quiet_state<GenerationEnvironment>(luck);
    for (float& f : bespoke.seen.fixtures) f = 0.0f;
    auto copied = bespoke;
    for (int i = 0; i < 4; ++i) {
      decide<GenerationEnvironment>(bespoke, 0, luck + 1000 * i);
      decide<GenerationEnvironment>(copied, 1, luck + 1000 * i);
    }
    EXPECT_GT(copied.seen.debt, bespoke.seen.debt);
    clean += term_later<GenerationEnvironment>(bespoke, 1, 8, luck, right);
    indebted += term_later<GenerationEnvironment>(copied, 1, 8, luck, right);
  }
  EXPECT_GT(clean, indebted + 0.1 * kThrows);
}

TEST(Consequences, BespokeTestsGrowFixturesForLaterTemplates) {
  auto s = quiet_state<GenerationEnvironment>();
  const float before = s.seen.fixtures[2];
  decide<GenerationEnvironment>(s, 4);
  EXPECT_GT(s.seen.fixtures[2], before);
}

TEST(Consequences, TestsThatAreNotRunLetDefectsEscapeLater) {
  double run = 0, left_out = 0;
  for (uint64_t luck = 1; luck <= kThrows; ++luck) {
    auto s = quiet_state<ExecutionEnvironment>(luck);
    for (int f = 0; f < kFeatures; ++f) {
      s.hidden.product.defects[f] = 1;
      s.seen.product.churn[f] = 0.3f;
    }
    for (float& w : s.seen.waiting) w = 6;
    auto other = s;
    for (int i = 0; i < 6; ++i) {
      decide<ExecutionEnvironment>(s, 2, luck + 1000 * i);
      decide<ExecutionEnvironment>(other, 6, luck + 1000 * i);
    }
    float covered = 0, bare = 0;
    for (int f = 0; f < kFeatures; ++f) {
      covered += s.seen.product.coverage[f];
      bare += other.seen.product.coverage[f];
    }
    EXPECT_GT(covered, bare);
    for (int f = 0; f < kFeatures; ++f) s.hidden.product.defects[f] = other.hidden.product.defects[f] = 1;
    const Draws day = Draws::of({luck, 9, 0, 3}, 0);
    Draws same = day, luck_of_other = day;
    run += pass_day(s.seen.product, s.hidden.product, ExecutionEnvironment::rates(), same);
    left_out += pass_day(other.seen.product, other.hidden.product, ExecutionEnvironment::rates(), luck_of_other);
  }
  EXPECT_GT(left_out, 1.2 * run);
}

TEST(Consequences, FalseAlertsCostTrustAndThenTrueOnesAreNotActedOn) {
  auto s = quiet_state<ObservationEnvironment>();
  s.hidden.regime = 2;
  s.seen.trust = 0.9f;
  for (uint64_t luck = 1; luck <= 6; ++luck) {
    s.hidden.regime = 2;
    decide<ObservationEnvironment>(s, 0, luck);  // the lowest threshold in the noisiest traffic
  }
  EXPECT_LT(s.seen.trust, 0.6f);

  double missed_doubted = 0, missed_trusted = 0;
  const auto middle = [](const ObservationEnvironment::State&) { return 4; };
  for (uint64_t luck = 1; luck <= kThrows; ++luck) {
    auto doubted = quiet_state<ObservationEnvironment>(luck);
    doubted.hidden.regime = 0;
    doubted.hidden.sick[3] = 1;
    auto trusted = doubted;
    doubted.seen.trust = 0.15f;
    trusted.seen.trust = 0.9f;
    missed_doubted += term_later<ObservationEnvironment>(doubted, 3, 4, luck, middle);
    missed_trusted += term_later<ObservationEnvironment>(trusted, 3, 4, luck, middle);
  }
  EXPECT_GT(missed_doubted, missed_trusted + 0.2 * kThrows);
}

TEST(Consequences, AWrongDiagnosisOfADefectComesBack) {
  double at_once = 0, after_wrong = 0, after_right = 0;
  const auto right = [](const AnalysisEnvironment::State& s) { return 2 * s.hidden.item.cause + 1; };
  for (uint64_t luck = 1; luck <= kThrows; ++luck) {
    auto wrong = quiet_state<AnalysisEnvironment>(luck);
    wrong.hidden.item.cause = 0;
    auto good = wrong;
    at_once += decide<AnalysisEnvironment>(wrong, 3, luck).terms[3];
    decide<AnalysisEnvironment>(good, 1, luck);
    EXPECT_LT(wrong.seen.trust, good.seen.trust);
    after_wrong += term_later<AnalysisEnvironment>(wrong, 3, 18, luck, right);
    after_right += term_later<AnalysisEnvironment>(good, 3, 18, luck, right);
  }
  EXPECT_LT(at_once, 1.1 * kThrows);
  EXPECT_GT(after_wrong - after_right, 0.15 * kThrows);
}

TEST(Consequences, AMaskedDefectBreaksLater) {
  double after_masking = 0, after_report = 0;
  const auto right = [](const EvolutionEnvironment::State& s) { return 2 * s.hidden.item.cause; };
  for (uint64_t luck = 1; luck <= kThrows; ++luck) {
    auto masked = quiet_state<EvolutionEnvironment>(luck);
    masked.hidden.item.cause = 2;  // a real defect
    auto reported = masked;
    decide<EvolutionEnvironment>(masked, 0, luck);  // healed light-handedly
    decide<EvolutionEnvironment>(reported, 4, luck);
    after_masking += term_later<EvolutionEnvironment>(masked, 3, 20, luck, right);
    after_report += term_later<EvolutionEnvironment>(reported, 3, 20, luck, right);
  }
  EXPECT_GT(after_masking - after_report, 0.15 * kThrows);
}

TEST(Consequences, LightChangesMakeTestsBrittle) {
  auto light = quiet_state<EvolutionEnvironment>();
  auto verified = light;
  const int f = light.seen.item.feature;
  decide<EvolutionEnvironment>(light, 0);
  decide<EvolutionEnvironment>(verified, 1);
  EXPECT_GT(light.seen.brittle[f], verified.seen.brittle[f]);
}

}  // namespace
}  // namespace tandem
