#include "launch/run_lock.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/errors.h"

namespace tandem {
namespace {

std::filesystem::path new_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "tandem-lock-XXXXXX").string();
  return mkdtemp(name.data());
}

TEST(RunLock, ASecondHolderIsRefusedAndTheFirstIsNamed) {
  const auto dir = new_folder();
  std::optional<RunLock> first(dir);
  try {
    RunLock second(dir);
    FAIL() << "two holders";
  } catch (const ConfigError& error) {
    EXPECT_NE(error.why().find("process " + std::to_string(getpid())), std::string::npos) << error.why();
  }
  first.reset();
  EXPECT_NO_THROW(RunLock{dir});
  std::filesystem::remove_all(dir);
}

TEST(RunLock, ReadersShareARunThatNobodyMayTrainMeanwhileAndAreNamed) {
  const auto dir = new_folder();
  {
    const RunReadLock one(dir), another(dir);
    try {
      RunLock writer(dir);
      FAIL() << "a reader's run was taken";
    } catch (const ConfigError& error) {
      if (std::filesystem::exists("/proc/locks")) {  // who reads is known to the kernel alone
        EXPECT_NE(error.why().find("train --from"), std::string::npos) << error.why();
      }
    }
  }
  EXPECT_NO_THROW(RunLock{dir});
  std::filesystem::remove_all(dir);
}

TEST(RunLock, ARunThatIsBeingTrainedIsNotRead) {
  const auto dir = new_folder();
  const RunLock writer(dir);
  try {
    RunReadLock reader(dir);
    FAIL() << "it is being trained";
  } catch (const ConfigError& error) {
    EXPECT_NE(error.why().find("process " + std::to_string(getpid())), std::string::npos) << error.why();
    EXPECT_NE(error.todo().find("kill " + std::to_string(getpid())), std::string::npos) << error.todo();
  }
  std::filesystem::remove_all(dir);
}

TEST(RunLock, OfAFolderThatIsMovedAwayWhileWeWaitIsNone) {
  const auto dir = new_folder(), moved = std::filesystem::path(dir.string() + "-moved");
  std::optional<RunLock> remover(dir);
  std::thread away([&] {
    std::filesystem::rename(dir, moved);
    remover.reset();
  });
  const auto locked = [](auto make) {
    try {
      make();
      return true;
    } catch (const ConfigError&) {
      return false;
    }
  };
  const RunLock::Patience patience{.alive_seconds = 100, .dead_seconds = 100};
  EXPECT_FALSE(locked([&] { RunLock waiter(dir, patience); }));
  away.join();
  EXPECT_FALSE(locked([&] { RunReadLock reader(dir); }));
  std::filesystem::remove_all(moved);
}

TEST(RunLock, IsGoneWithItsHolderHoweverThatEnded) {
  const auto dir = new_folder();
  const pid_t child = fork();
  if (child == 0) {
    RunLock lock(dir);
    raise(SIGKILL);
  }
  waitpid(child, nullptr, 0);
  EXPECT_NO_THROW(RunLock{dir});
  std::filesystem::remove_all(dir);
}

// A launcher that was killed, and a child of it that has neither begun nor ended: it holds the lock until `hold` is
// closed, or for so long.
struct KilledLauncher {
  pid_t pid = -1;
  int hold = -1;

  KilledLauncher(const std::filesystem::path& dir, int child_milliseconds) {
    int ready[2], keep[2];
    if (pipe(ready) != 0 || pipe(keep) != 0) throw std::runtime_error("no pipe");
    pid = fork();
    if (pid == 0) {
      const RunLock lock(dir);
      if (fork() == 0) {
        close(keep[1]);
        [[maybe_unused]] const auto written = write(ready[1], "x", 1);
        pollfd wait{keep[0], POLLIN, 0};
        poll(&wait, 1, child_milliseconds);
        _exit(0);
      }
      pause();
    }
    close(keep[0]);
    char byte;
    if (read(ready[0], &byte, 1) != 1) throw std::runtime_error("no child");
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    close(ready[0]);
    close(ready[1]);
    hold = keep[1];
  }
  ~KilledLauncher() { close(hold); }
};

TEST(RunLock, WaitsForTheChildOfAKilledLauncherThatHasNotBegun) {
  const auto dir = new_folder();
  const KilledLauncher killed(dir, 150);
  EXPECT_NO_THROW(RunLock{dir});
  std::filesystem::remove_all(dir);
}

TEST(RunLock, NeverNamesAProcessThatIsDead) {
  const auto dir = new_folder();
  const KilledLauncher killed(dir, -1);
  try {
    const RunLock lock(dir, {.alive_seconds = 0, .dead_seconds = 0.05});
    FAIL() << "two holders";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.why().find(std::to_string(killed.pid)), std::string::npos) << error.why();
    EXPECT_NE(error.why().find("another process"), std::string::npos) << error.why();
  }
  std::filesystem::remove_all(dir);
}

TEST(RunLock, TakesAwayWhatAKilledProcessWasWriting) {
  const auto dir = new_folder();
  const pid_t child = fork();
  if (child == 0) raise(SIGKILL);
  waitpid(child, nullptr, 0);
  const auto left = dir / (".tmp-run.json-" + std::to_string(child) + "-4");
  std::ofstream(left) << "{";
  const RunLock lock(dir);
  EXPECT_FALSE(std::filesystem::exists(left));
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace tandem
