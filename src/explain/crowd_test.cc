#include "explain/crowd.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/cores.h"

namespace tandem {
namespace {

double cpu_of(pid_t pid) {
  clockid_t clock{};
  timespec now{};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &now) != 0) return -1;
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// A process that only computes, for as long as this lives.
class Busy {
 public:
  explicit Busy(bool orphan) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      const pid_t self = orphan && fork() != 0 ? 0 : getpid();
      if (self == 0) _exit(0);  // its child has another parent now
      alarm(1800);
      if (write(ends[1], &self, sizeof self) != sizeof self) _exit(1);
      for (;;) sched_getcpu();
    }
    EXPECT_EQ(read(ends[0], &pid_, sizeof pid_), static_cast<ssize_t>(sizeof pid_));
    close(ends[0]);
    close(ends[1]);
    if (orphan) waitpid(child, nullptr, 0);
    child_ = orphan ? 0 : child;
  }
  ~Busy() {
    kill(pid_, SIGKILL);
    if (child_ > 0) waitpid(child_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0, child_ = 0;
};

bool has(const std::vector<OtherProgram>& programs, pid_t pid) {
  return std::any_of(programs.begin(), programs.end(), [&](const OtherProgram& one) { return one.pid == pid; });
}

// The machine may be busy: what a process took is what the kernel says, however long that takes.
TEST(Crowd, ABusyProgramIsNamedWithItsCoresAndAChildOfOursIsNot) {
  const Busy other(true), own(false);
  OtherPrograms programs;
  EXPECT_TRUE(programs.look(100).empty()) << "since when is not known yet";
  const double begin = cpu_of(other.pid()), own_begin = cpu_of(own.pid());
  while (cpu_of(other.pid()) < begin + 0.3 || cpu_of(own.pid()) < own_begin + 0.3) sched_yield();
  // Half a second by our clock: what had 0.3 core-seconds of it took more than half a core.
  const auto found = programs.look(100.5);
  ASSERT_TRUE(has(found, other.pid()) || found.size() == 3);  // three that took more are named before it
  EXPECT_FALSE(has(found, own.pid()));
  for (const OtherProgram& one : found) {
    if (one.pid == other.pid()) {
      EXPECT_GT(one.cores, 0.5);
    }
  }
}

TEST(Crowd, IdleTimeOnlyGrowsAndCoresAreThoseOfThisProcess) {
  EXPECT_GE(usable_cores(), 1);
  const auto first = idle_core_seconds(), second = idle_core_seconds();
  ASSERT_TRUE(first && second);
  EXPECT_GE(*second + 0.1, *first);  // ticks that moved from one column to another may be cut
}

TEST(Crowd, ProgramsAreLookedForOnlyWhileTheWorkersWaitForCores) {
  const Busy other(true);
  CrowdWatch watch;
  TimesLine line{.ranks = {{.rank = 0, .device = "cpu:0", .shards = 1}}};
  double now = 100;
  const auto second_of = [&](double delay) {
    line.others.clear();
    line.ranks[0].times.delay += delay;
    watch.add_to(line, now += 1);
    return line.others.size();
  };
  for (int i = 0; i < 5; ++i) EXPECT_EQ(second_of(0.02), 0u);
  EXPECT_EQ(second_of(0.5), 0u) << "the first look has nothing to compare with";
  const double begin = cpu_of(other.pid());
  while (cpu_of(other.pid()) < begin + 0.3) sched_yield();
  EXPECT_GT(second_of(0.5), 0u);
  EXPECT_GT(second_of(0.5), 0u) << "stands until the next look";
  EXPECT_EQ(second_of(0.02), 0u);
}

}  // namespace
}  // namespace tandem
