#include <gtest/gtest.h>

#include <sstream>

#include "runs/index.h"
#include "telemetry/human.h"

namespace tandem {
namespace {

RunRow row() {
  RunRow r;
  r.id = "tiny-20261115-014706-abc234", r.recipe = "tiny", r.status = "done", r.started = "2026-11-15T01:47:06Z";
  r.dir = "runs/tiny-20261115-014706-abc234", r.step = 84, r.total_steps = 200, r.seconds = 75, r.loss = 0.43,
  r.digest = "77b04a1200000000ffff", r.kind = "cpu";
  r.metrics = {{"accuracy", 0.9}, {"loss", 0.43}};
  r.settings = {{"seed", "7"}};
  return r;
}

TEST(RunText, TheListFitsTheTerminalAndAlignsItsColumns) {
  auto other = row();
  other.recipe = "a-recipe-with-a-very-long-name-indeed", other.loss = kAbsent, other.digest = "";
  for (int width = 30; width <= 160; width += 13) {
    std::istringstream lines(list_text({row(), other}, width));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(display_width(line), width);
  }
  const std::string text = list_text({row(), other}, 160);
  EXPECT_NE(text.find("abc234"), text.npos);
  EXPECT_NE(text.find("84/200"), text.npos);
  EXPECT_NE(text.find("1:15"), text.npos);
  EXPECT_NE(text.find("2026-11-15 01:47"), text.npos);
  EXPECT_EQ(list_text({}), "no runs\n");
}

TEST(RunText, TheListHasReturnAndScoreWhereARunHasThem) {
  EXPECT_EQ(list_text({row()}, 160).find("RETURN"), std::string::npos);
  auto learner = row(), set = row();
  learner.metrics = {{"average_return", 187.43}, {"epsilon", 0.1}};
  set.metrics = {{"analysis/score", 0.31}, {"evolution/score", 0.72}};
  const std::string text = list_text({row(), learner, set}, 160);
  for (const char* part : {"RETURN", "SCORE", "187.4", "0.31-0.72"}) EXPECT_NE(text.find(part), text.npos) << text;
  EXPECT_NE(show_text(learner).find("return   187.4\n"), std::string::npos) << show_text(learner);
}

TEST(RunText, ARunThatTheUserNamedIsListedByThatName) {
  auto named = row();
  named.dir = "/data/mine";
  EXPECT_NE(list_text({named}, 160).find("mine "), std::string::npos);
  EXPECT_EQ(list_text({named}, 160).find("abc234"), std::string::npos);
}

TEST(RunText, JsonHasNumbersWithoutUnitsAndNullForAbsent) {
  auto r = row();
  r.loss = kAbsent;
  const auto json = to_json(std::vector<RunRow>{r})[0];
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_EQ(json["seconds"], 75.0);
  EXPECT_EQ(json["metrics"]["accuracy"], 0.9);
  EXPECT_EQ(json["settings"]["seed"], "7");
}

TEST(RunText, ComparisonSaysWhetherTheWeightsAreEqual) {
  RunComparison c{row(), row(), {{"seed", "7", std::nullopt}}, {{"loss", 0.43, std::nullopt}}, true, true};
  EXPECT_NE(compare_text(c).find("equal, bit for bit"), std::string::npos);
  c.same_digest = false, c.same_kind = false;
  EXPECT_NE(compare_text(c).find("differ (of unequal kinds)"), std::string::npos);
  c.same_digest.reset();
  EXPECT_NE(compare_text(c).find("not comparable"), std::string::npos);
  EXPECT_TRUE(to_json(c)["same_digest"].is_null());
  EXPECT_TRUE(to_json(c)["settings"]["seed"]["b"].is_null());
}

TEST(RunText, ShowHasEverythingAboutARun) {
  const std::string text = show_text(row());
  for (const char* part : {"tiny-20261115-014706-abc234", "77b04a1200000000ffff", "accuracy", "seed", "84/200"})
    EXPECT_NE(text.find(part), text.npos) << part;
}

}  // namespace
}  // namespace tandem
