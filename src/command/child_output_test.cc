#include "command/child_output.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>

#include "base/clock.h"
#include "command/scratch.h"

namespace tandem {
namespace {

ChildOutput shell(const std::string& script) { return run_child({.words = {"sh", "-c", script}, .silent = true}); }

TEST(ChildOutput, TellsWhatItSaidAndHowItEnded) {
  const ChildOutput fine = shell("echo one; echo two >&2; echo three");
  EXPECT_EQ(fine.text, "one\nthree\n");
  EXPECT_TRUE(fine.ok());
  const ChildOutput failed = shell("echo word; exit 3");
  EXPECT_EQ(failed.text, "word\n");
  EXPECT_FALSE(failed.ok());
  EXPECT_EQ(failed.ending(), "code 3");
  EXPECT_EQ(shell("kill -9 $$").ending(), "signal 9");
}

TEST(ChildOutput, AProgramThatIsNotThereIsToldFromOneThatFails) {
  const ChildOutput none = run_child({.words = {"/nowhere/program"}});
  EXPECT_FALSE(none.ok());
  EXPECT_EQ(none.ending(), "it could not be started: No such file or directory");
}

TEST(ChildOutput, TakesTheEnvironmentItIsGiven) {
  EXPECT_EQ(run_child({.words = {"sh", "-c", "echo $WORD"}, .environment = {{"WORD", "seven"}}}).text, "seven\n");
}

TEST(ChildOutput, AChildThatSaysTooMuchEndsAllTheSame) {
  const ChildOutput much = shell("head -c 3000000 /dev/zero; exit 5");
  EXPECT_EQ(much.code, 5);
  EXPECT_GE(much.text.size(), 1u << 20);
  EXPECT_LT(much.text.size(), 2u << 20);
}

// Or dead, where nobody takes its end: PID 1 of a container may not.
bool gone(pid_t pid) {
  if (kill(pid, 0) != 0 && errno == ESRCH) return true;
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const size_t close = text.rfind(')');
  return close != std::string::npos && close + 2 < text.size() && (text[close + 2] == 'Z' || text[close + 2] == 'X');
}

// Looks until it is so, however slow the machine is.
template <class F>
bool comes(F what) {
  for (const double end = monotonic_seconds() + 600; monotonic_seconds() < end; poll(nullptr, 0, 20))
    if (what()) return true;
  return false;
}

// Runs `f` in a process that tells a line through the pipe, and kills it then.
template <class F>
std::string killed_after_its_word(F f) {
  int ends[2];
  if (pipe(ends) != 0) return "";
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    f(ends[1]);
    _exit(0);
  }
  close(ends[1]);
  std::string word;
  for (char c = 0; read(ends[0], &c, 1) == 1 && c != '\n';) word += c;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ends[0]);
  return word;
}

TEST(ChildOutput, DiesWithItsReader) {
  const std::string word = killed_after_its_word([](int out) {
    dup2(out, 9);
    run_child({.words = {"sh", "-c", "echo $$ >&9; exec sleep 1000"}});
  });
  const pid_t grandchild = std::atoi(word.c_str());
  ASSERT_GT(grandchild, 1) << word;
  EXPECT_TRUE(comes([&] { return gone(grandchild); })) << grandchild;
}

TEST(Scratch, IsGoneAfterItsUseAndAfterAKill) {
  std::filesystem::path kept;
  {
    const Scratch scratch("test");
    kept = scratch.path();
    EXPECT_TRUE(std::filesystem::is_directory(kept));
  }
  EXPECT_FALSE(std::filesystem::exists(kept));
  const std::string word = killed_after_its_word([](int out) {
    const Scratch scratch("test");
    const std::string line = scratch.path().string() + "\n";
    if (write(out, line.data(), line.size()) > 0) pause();
  });
  ASSERT_NE(word.find("tandem-test-"), std::string::npos) << word;
  EXPECT_TRUE(comes([&] { return !std::filesystem::exists(word); })) << word;
}

}  // namespace
}  // namespace tandem
