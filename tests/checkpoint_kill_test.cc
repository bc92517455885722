// tests/checkpoint_kill_test.cc -- a process that saves checkpoints is killed at random moments, again and again.
//
// After every kill the newest checkpoint that loads is at least the last one the process said it had saved, and every
// byte of it is right. TANDEM_KILLS sets the number of kills (default 100), TANDEM_KILL_SEED the moments.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <random>

#include "checkpoint/sample.h"

namespace tandem {
namespace {

int number_from(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}

struct Saver {
  pid_t pid;
  int out;
};

Saver start(const std::filesystem::path& dir) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], STDOUT_FILENO);
    execl(TANDEM_KILL_SAVER, TANDEM_KILL_SAVER, dir.c_str(), nullptr);
    _exit(127);
  }
  close(ends[1]);
  return {pid, ends[0]};
}

std::string read_some(int fd) {
  char buffer[4096];
  const ssize_t count = read(fd, buffer, sizeof buffer);
  return count > 0 ? std::string(buffer, static_cast<std::size_t>(count)) : "";
}

// Lets it save a while, kills it, and returns all that it printed. The wait is not to let something happen: it is the
// random moment itself.
std::string run_and_kill(const Saver& saver, std::mt19937& random) {
  std::string printed = read_some(saver.out);  // it is up: it has saved once, or it died
  const long nanoseconds = std::uniform_int_distribution<long>(0, 4'000'000)(random);
  timespec moment{0, nanoseconds};
  ppoll(nullptr, 0, &moment, nullptr);
  kill(saver.pid, SIGKILL);
  for (std::string more; !(more = read_some(saver.out)).empty();) printed += more;
  close(saver.out);
  int status = 0;
  waitpid(saver.pid, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "the saver ended by itself, status " << status;
  return printed;
}

// The last whole line; the pipe may have been cut inside one.
std::int64_t last_step(const std::string& printed) {
  const std::size_t end = printed.rfind('\n');
  if (end == std::string::npos) return 0;
  const std::size_t begin = end == 0 ? std::string::npos : printed.rfind('\n', end - 1);
  return std::atoll(printed.c_str() + (begin == std::string::npos ? 0 : begin + 1));
}

}  // namespace

TEST(CheckpointKill, AtAnyMomentLeavesTheLastSavedStepLoadable) {
  const int kills = number_from("TANDEM_KILLS", 100);
  std::mt19937 random(static_cast<unsigned>(number_from("TANDEM_KILL_SEED", 7)));
  TempDir dir(quick_dir());
  const auto folder = dir / "checkpoints";
  int inside = 0;  // kills that met a save half done
  std::int64_t saved = 0;
  for (int i = 0; i < kills; ++i) {
    const std::string printed = run_and_kill(start(folder), random);
    ASSERT_FALSE(printed.empty()) << "kill " << i << ": nothing was saved";
    saved = std::max(saved, last_step(printed));
    for (const std::string& name : FileSystem::real().list(folder)) {
      if (!name.starts_with('.')) continue;
      ++inside;
      break;
    }
    // As somebody else would read it, then as the next run opens it.
    const auto seen = CheckpointStore::reader(FileSystem::real(), folder).load_newest();
    // A replacement of the same step may be half way: then the step is aside, and the next open puts it back.
    ASSERT_TRUE(seen);
    CheckpointStore store(FileSystem::real(), folder, 2);
    const auto loaded = store.load_newest();
    ASSERT_TRUE(loaded);
    ASSERT_GE(loaded->manifest.step, saved) << "kill " << i;
    ASSERT_EQ(Sample(loaded->manifest.step, "tiny-1", 3000).difference(*loaded), "") << "kill " << i;
    ASSERT_TRUE(loaded->refused.empty()) << loaded->refused[0];
    for (const std::string& name : FileSystem::real().list(folder)) ASSERT_FALSE(name.starts_with('.')) << name;
  }
  std::printf("%d kills, %d of them inside a save, %lld steps saved, none lost\n", kills, inside,
              static_cast<long long>(saved));
  EXPECT_GT(inside, kills / 10) << "the kills no longer hit the saves";
}

}  // namespace tandem
