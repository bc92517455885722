#include "base/clock.h"

#include <gtest/gtest.h>

#include <regex>

namespace tandem {

TEST(Clock, MonotonicSecondsNeverGoBack) {
  double last = monotonic_seconds();
  for (int i = 0; i < 1000; ++i) {
    const double now = monotonic_seconds();
    EXPECT_GE(now, last);
    last = now;
  }
}

TEST(Clock, StampsHaveTheirShape) {
  EXPECT_TRUE(std::regex_match(utc_stamp(), std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)"))) << utc_stamp();
  EXPECT_TRUE(std::regex_match(utc_file_stamp(), std::regex(R"(\d{8}-\d{6})"))) << utc_file_stamp();
}

}  // namespace tandem
