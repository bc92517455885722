#include "forecast/outcomes.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/temp_dir.h"

namespace tandem {
namespace {

TEST(Outcomes, TheLastOfARecipeAreReadBackAndBrokenLinesAreNot) {
  const TempDir dir;
  for (int i = 1; i <= 7; ++i)
    keep_outcome(dir.path(), {.run = "r" + std::to_string(i),
                              .recipe = i == 3 ? "other" : "tiny",
                              .made = "now",
                              .workers = 2,
                              .forecast_seconds = 10.0 + i,
                              .took_seconds = 10,
                              .forecast_memory = 110,
                              .memory = 100});
  std::ofstream(dir.path() / "outcomes.jsonl", std::ios::app) << "{\"run\": 3}\nnot json\n{\"run\":\"to";
  const auto last = last_outcomes(dir.path(), "tiny", 3);
  ASSERT_EQ(last.size(), 3u);
  EXPECT_EQ(last.back().run, "r7");
  EXPECT_NEAR(last.back().time_error(), .7, 1e-12);
  EXPECT_NEAR(last.back().memory_error(), .1, 1e-12);
  EXPECT_NEAR(outcome_error({last.back()}), .7, 1e-12);
  EXPECT_EQ(last_outcomes(dir.path(), "", 100).size(), 7u);
  EXPECT_TRUE(last_outcomes(dir.path() / "nowhere", "", 5).empty());
}

TEST(Outcomes, ARunTooShortToSayAnythingIsNeitherKeptNorReadBack) {
  const TempDir dir;
  const auto keep = [&](const char* run, double took) {
    keep_outcome(dir.path(),
                 {.run = run, .recipe = "tiny", .made = "now", .forecast_seconds = 1, .took_seconds = took});
  };
  keep("smoke", .6);
  EXPECT_FALSE(std::filesystem::exists(dir.path() / "outcomes.jsonl"));
  keep("whole", kShortestOutcome);
  std::ofstream(dir.path() / "outcomes.jsonl", std::ios::app)
      << R"({"run":"old","recipe":"tiny","made":"then","workers":1,"forecast_seconds":0.4,"took_seconds":0.6,)"
         R"("forecast_memory":0,"memory":0})"
      << "\n";
  const auto last = last_outcomes(dir.path(), "tiny", 5);
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].run, "whole");
}

}  // namespace
}  // namespace tandem
