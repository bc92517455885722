#include "launch/run_lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

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

}  // namespace
}  // namespace tandem
