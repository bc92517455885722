#include "jobs/set_display.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(SetTable, TellsEachAgentAndShowsWhatIsNotKnownAsAbsent) {
  JobStatus done;
  done.state = JobStatus::State::kDone;
  done.step = 4000;
  done.seconds = 75;
  done.score = .731;
  done.average_return = 8.04;
  done.digest = "0123456789abcdef";
  done.devices = {"cpu:0", "cpu:1"};
  JobStatus failed;
  failed.state = JobStatus::State::kFailed;
  const std::string table = set_table({{.name = "analysis", .rule_score = .62}, {.name = "evolution"}}, {done, failed});
  EXPECT_NE(table.find("analysis      4000      1:15       8.0    0.73    0.62  01234567  cpu:0 cpu:1\n"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("evolution        0      0:00         -       -       -            failed\n"), std::string::npos)
      << table;
}

TEST(DurationWords, FitTheirLength) {
  EXPECT_EQ(duration_words(47.6), "48 s");
  EXPECT_EQ(duration_words(236), "3 min 56 s");
  EXPECT_EQ(duration_words(2400), "40 min");
  EXPECT_EQ(duration_words(3 * 3600 + 5 * 60), "3 h 05 min");
}

}  // namespace
}  // namespace tandem
