#include "base/clock.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <fstream>
#include <regex>
#include <thread>

namespace tandem {

TEST(Clock, MonotonicSecondsNeverGoBack) {
  double last = monotonic_seconds();
  for (int i = 0; i < 1000; ++i) {
    const double now = monotonic_seconds();
    EXPECT_GE(now, last);
    last = now;
  }
}

// Two threads on one core: whichever is not running waits, so together they wait for about as long as they run.
TEST(Clock, AThreadThatSharesItsCoreIsToldThatItWaited) {
  double ran = 0;
  if (!(std::ifstream("/proc/thread-self/schedstat") >> ran) || ran <= 0)
    GTEST_SKIP() << "the kernel does not report it";
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over.load(std::memory_order_relaxed)) {
    }
  });
  const double waited = thread_wait_seconds(), begin = thread_cpu_seconds();
  while (thread_cpu_seconds() - begin < 0.2) {
  }
  EXPECT_GT(thread_wait_seconds() - waited, 0.05);
  over = true;
  other.join();
  sched_setaffinity(0, sizeof before, &before);
}

TEST(Clock, StampsHaveTheirShape) {
  EXPECT_TRUE(std::regex_match(utc_stamp(), std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)"))) << utc_stamp();
  EXPECT_TRUE(std::regex_match(utc_file_stamp(), std::regex(R"(\d{8}-\d{6})"))) << utc_file_stamp();
}

}  // namespace tandem
