#include "apps/web_test/gate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/philox.h"

namespace tandem {
namespace {

std::vector<double> around(double mean, double step) {
  std::vector<double> out;
  for (int i = 0; i < 100; ++i) out.push_back(mean + step * (i % 10 - 4.5));
  return out;
}

TEST(Gate, EqualAndBetterPassAndWorseFails) {
  const auto before = around(0.7, 0.02);
  EXPECT_TRUE(compare_scores("old", before, before).passed);
  EXPECT_TRUE(compare_scores("old", before, around(0.8, 0.02)).passed);
  EXPECT_FALSE(compare_scores("old", before, around(0.68, 0.02)).passed) << "beyond chance";
}

TEST(Gate, WhatIsTooSmallToMatterPassesHoweverSureItIs) {
  const auto before = around(0.7, 0.02);
  EXPECT_LT(compare_scores("old", before, around(0.695, 0.02)).high, 0);
  EXPECT_TRUE(compare_scores("old", before, around(0.695, 0.02)).passed);
}

TEST(Gate, ALossWithinChancePassesAndALargeOneNeverDoes) {
  const auto before = around(0.7, 0.02);
  auto noisy = before;
  for (size_t i = 0; i < noisy.size(); ++i) noisy[i] += (i % 2 ? 0.5 : -0.5) - 0.01;
  EXPECT_TRUE(compare_scores("old", before, noisy).passed);
  for (double& value : noisy) value -= 0.05;
  const GateLine line = compare_scores("old", before, noisy);
  EXPECT_GT(line.high, 0) << "chance could explain it";
  EXPECT_FALSE(line.passed) << "but it is more than may be lost";
}

TEST(Gate, NumbersThatAreNoneFail) {
  auto broken = around(0.7, 0.02);
  broken[3] = std::nan("");
  EXPECT_FALSE(compare_scores("old", around(0.7, 0.02), broken).passed);
}

// Prefers one action everywhere.
struct Fixed : QFunction {
  explicit Fixed(int64_t action, float worth = 1) : action(action), worth(worth) {}
  int64_t action;
  float worth;
  int64_t observation_size() const override { return 2; }
  int64_t actions() const override { return 4; }
  void q_values(const float*, int64_t n, float* out) const override {
    for (int64_t i = 0; i < n * 4; ++i) out[i] = i % 4 == action ? worth : 0;
  }
};

// Another product: action 1 pays 1, the others nothing; action 3 was never tried.
LoggedEpisodes another_product(int64_t episodes) {
  LoggedEpisodes log;
  log.state_size = 2;
  log.action_count = 4;
  uint64_t draw = 0;
  for (int64_t e = 0; e < episodes; ++e) {
    log.begin_episode();
    for (int t = 0; t < 5; ++t) {
      const float state[2] = {static_cast<float>(t), random_uniform({3, 0, 0, 1}, draw++)};
      const int32_t action = static_cast<int32_t>(random_below({3, 0, 0, 2}, draw++, 3));
      log.add(state, action, action == 1 ? 1.0f : 0.0f, state, t == 4);
    }
  }
  return log;
}

TEST(Gate, AHistoryOfAnotherProductPassesOrFailsByItsOwnEpisodes) {
  const LoggedEpisodes log = another_product(30);
  const Fixed right(1), wrong(2);
  const GateLine better = compare_on_episodes("new", log, 0.9, wrong, right),
                 worse = compare_on_episodes("new", log, 0.9, right, wrong),
                 same = compare_on_episodes("new", log, 0.9, right, right);
  EXPECT_TRUE(better.passed && better.judged) << better.note;
  EXPECT_GT(better.low, 0);
  EXPECT_FALSE(worse.passed);
  EXPECT_TRUE(worse.judged);
  EXPECT_TRUE(same.passed);
  EXPECT_EQ(worse.episodes, 30);
}

TEST(Gate, WhatTheEpisodesCannotTellIsNotJudged) {
  const GateLine few = compare_on_episodes("new", another_product(4), 0.9, Fixed(1), Fixed(1));
  EXPECT_FALSE(few.judged || few.passed);
  EXPECT_NE(few.note.find("5 are needed"), std::string::npos) << few.note;
  const GateLine unknown = compare_on_episodes("new", another_product(30), 0.9, Fixed(1), Fixed(3));
  EXPECT_FALSE(unknown.judged || unknown.passed);
  EXPECT_NE(unknown.note.find("100 % of its decisions"), std::string::npos) << unknown.note;
  const GateLine none = compare_on_episodes("new", another_product(30), 0.9, Fixed(1), Fixed(1, std::nanf("")));
  EXPECT_TRUE(none.judged);
  EXPECT_FALSE(none.passed);
  EXPECT_EQ(none.note, "its values are no numbers");
}

TEST(Gate, WhatCouldNotBeJudgedIsNeitherPassedNorWorse) {
  GateResult result{"analysis", {compare_on_episodes("new", another_product(4), 0.9, Fixed(1), Fixed(1))}};
  EXPECT_FALSE(result.passed());
  EXPECT_FALSE(result.worse());
  EXPECT_EQ(gate_json(result)["gates"][0]["outcome"], "not judged");
  EXPECT_NE(gate_table({result}).find("not judged: 4 different episodes"), std::string::npos) << gate_table({result});
  result.lines.push_back(compare_scores("old", around(0.7, 0.02), around(0.5, 0.02)));
  EXPECT_TRUE(result.worse());
  EXPECT_EQ(gate_json(result)["gates"][1]["outcome"], "worse");
  result.lines[1].rule = GateRule::kWarn;
  EXPECT_FALSE(result.worse()) << "what only warns refuses nothing";
}

TEST(Gate, ManyEpisodesAreJudgedByABoundedPartAndTheTableSaysSo) {
  const GateLine line = compare_on_episodes("new", another_product(2500), 0.9, Fixed(2), Fixed(1));
  EXPECT_TRUE(line.judged && line.passed) << line.note;
  EXPECT_LE(line.episodes * 5, FittedQEvaluation::kMostRows);
  EXPECT_EQ(line.held_out, 2500);
  const GateResult result{"analysis", {line}};
  EXPECT_NE(gate_table({result}).find("of 2500 held-out episodes"), std::string::npos) << gate_table({result});
  EXPECT_EQ(gate_json(result)["gates"][0]["held_out"], 2500);
}

TEST(Gate, ALineThatWarnsRefusesNothing) {
  GateResult result{"analysis", {compare_scores("old", around(0.7, 0.02), around(0.5, 0.02))}};
  EXPECT_FALSE(result.passed());
  result.lines[0].rule = GateRule::kWarn;
  EXPECT_TRUE(result.passed());
  EXPECT_FALSE(result.lines[0].passed);
  EXPECT_EQ(gate_json(result)["gates"][0]["rule"], "warn");
  EXPECT_NE(gate_table({result}).find("failed, a warning only"), std::string::npos);
}

TEST(GateRules, AreReadAndWhatIsWrongIsSaid) {
  EXPECT_EQ(gate_rules_of("").old_one, GateRule::kRefuse);
  const GateRules both = gate_rules_of("old=warn,new=off");
  EXPECT_EQ(both.old_one, GateRule::kWarn);
  EXPECT_EQ(both.fresh, GateRule::kOff);
  EXPECT_EQ(gate_rules_of("old=off").fresh, GateRule::kRefuse);
  for (const char* good : {"", "old=refuse", "new=warn", "new=off,old=refuse"})
    EXPECT_FALSE(wrong_gate_rules(good)) << good;
  for (const char* bad : {"warn", "old", "old=", "old=maybe", "older=warn", "old=warn,", ",", "old=warn,old=off"})
    EXPECT_TRUE(wrong_gate_rules(bad)) << bad;
}

}  // namespace
}  // namespace tandem
