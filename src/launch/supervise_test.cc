// Real processes: a launcher is forked, it starts the stand-in worker, and the test talks to both by signals and pipes.
// Nothing here sleeps: every wait is a read or a poll on something that ends when the awaited thing happens.
#include "launch/supervise.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "base/errors.h"

namespace tandem {
namespace {

constexpr int kPatienceMs = 20000;

class Launcher {
 public:
  explicit Launcher(const std::string& behaviour, SuperviseOptions options = {}, bool nohup = false) {
    int out[2], err[2];
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(err, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(out[1], STDOUT_FILENO);
      dup2(err[1], STDERR_FILENO);
      if (nohup) signal(SIGHUP, SIG_IGN);
      _exit(launch(behaviour, std::move(options)));
    }
    close(out[1]);
    close(err[1]);
    out_ = out[0];
    err_ = err[0];
  }
  ~Launcher() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(out_);
    close(err_);
  }

  std::string line() { return read_line(out_); }
  pid_t worker_when_ready() {
    const std::string text = line();
    EXPECT_TRUE(text.starts_with("ready ")) << text;
    return std::atoi(text.c_str() + 6);
  }
  void send(int signal) const { kill(pid_, signal); }
  int exit_code() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  bool stops() {
    int status = 0;
    return waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status);
  }
  void kill_and_reap() {
    kill(pid_, SIGKILL);
    exit_code();
  }
  std::string said() {
    std::string text;
    char buffer[512];
    ssize_t got;
    while ((got = read(err_, buffer, sizeof buffer)) > 0) text.append(buffer, static_cast<size_t>(got));
    return text;
  }
  std::string said_line() { return read_line(err_); }

 private:
  static int launch(const std::string& behaviour, SuperviseOptions options) {
    options.say = [](std::string_view text) {
      dprintf(STDERR_FILENO, "%.*s\n", static_cast<int>(text.size()), text.data());
    };
    WorkerCommand command{STAND_IN_WORKER, {"work", "run"}, {{"TANDEM_STAND_IN", behaviour}, {"OMP_NUM_THREADS", "1"}}};
    if (behaviour == "missing") command.program = "/nonexistent/tandem-worker";
    try {
      return supervise(command, options);
    } catch (const Error& error) {
      dprintf(STDERR_FILENO, "%s", error.render().c_str());
      return static_cast<int>(error.code());
    }
  }
  static std::string read_line(int fd) {
    std::string text;
    char c;
    pollfd wait{fd, POLLIN, 0};
    while (poll(&wait, 1, kPatienceMs) == 1 && read(fd, &c, 1) == 1 && c != '\n') text += c;
    return text;
  }

  pid_t pid_ = -1;
  int out_ = -1, err_ = -1;
};

// True once the process behind the pidfd has ended.
class Watch {
 public:
  explicit Watch(pid_t pid) : fd_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {}
  ~Watch() { close(fd_); }
  bool open() const { return fd_ >= 0; }
  bool ends() const {
    pollfd wait{fd_, POLLIN, 0};
    return poll(&wait, 1, kPatienceMs) == 1;
  }

 private:
  int fd_;
};

TEST(Supervise, TheWorkersExitCodeIsTheCommands) {
  for (const int code : {0, 1, 2, 5, 7, 75}) {
    Launcher launcher("exit " + std::to_string(code));
    EXPECT_EQ(launcher.exit_code(), code);
  }
}

TEST(Supervise, FirstInterruptLetsTheWorkerFinishAndItsCodeCounts) {
  Launcher launcher("polite");
  launcher.worker_when_ready();
  launcher.send(SIGINT);
  EXPECT_EQ(launcher.line(), "int");
  EXPECT_EQ(launcher.exit_code(), 130);
  EXPECT_NE(launcher.said().find("Ctrl-C again stops at once"), std::string::npos);
}

TEST(Supervise, SecondInterruptKillsAWorkerThatWouldNotEnd) {
  Launcher launcher("stubborn");
  const Watch worker(launcher.worker_when_ready());
  launcher.send(SIGINT);
  EXPECT_EQ(launcher.line(), "int");  // it has the first one, and goes on
  launcher.send(SIGINT);
  EXPECT_EQ(launcher.exit_code(), 130);
  EXPECT_TRUE(worker.ends());
}

TEST(Supervise, TerminateIsPassedOn) {
  Launcher launcher("polite");
  launcher.worker_when_ready();
  launcher.send(SIGTERM);
  EXPECT_EQ(launcher.line(), "term");
  EXPECT_EQ(launcher.exit_code(), 143);
}

TEST(Supervise, UserSignalIsPassedOnAndTheRunGoesOn) {
  Launcher launcher("polite");
  launcher.worker_when_ready();
  for (int i = 0; i < 3; ++i) {
    launcher.send(SIGUSR1);
    EXPECT_EQ(launcher.line(), "usr1");
  }
  launcher.send(SIGTERM);
  EXPECT_EQ(launcher.exit_code(), 143);
}

TEST(Supervise, HangupSavesUnlessItIsIgnoredAsUnderNohup) {
  Launcher plain("polite");
  plain.worker_when_ready();
  plain.send(SIGHUP);
  EXPECT_EQ(plain.line(), "term");
  EXPECT_EQ(plain.exit_code(), 143);

  Launcher nohup("polite", {}, true);
  nohup.worker_when_ready();
  nohup.send(SIGHUP);
  nohup.send(SIGUSR1);
  EXPECT_EQ(nohup.line(), "usr1");
  nohup.send(SIGTERM);
  EXPECT_EQ(nohup.exit_code(), 143);
}

TEST(Supervise, CtrlZStopsBothAndForegroundGoesOn) {
  Launcher launcher("polite");
  const pid_t worker = launcher.worker_when_ready();
  launcher.send(SIGTSTP);
  EXPECT_TRUE(launcher.stops());
  std::ifstream stat("/proc/" + std::to_string(worker) + "/stat");
  std::string pid, name, state;
  stat >> pid >> name >> state;
  EXPECT_EQ(state, "T");  // the launcher stops itself after the worker has been told
  launcher.send(SIGCONT);
  launcher.send(SIGUSR1);
  EXPECT_EQ(launcher.line(), "usr1");
  launcher.send(SIGTERM);
  EXPECT_EQ(launcher.exit_code(), 143);
}

TEST(Supervise, AKilledLauncherTakesItsWorkerAlong) {
  Launcher launcher("stubborn");
  const Watch worker(launcher.worker_when_ready());
  ASSERT_TRUE(worker.open());
  launcher.kill_and_reap();
  EXPECT_TRUE(worker.ends());
}

TEST(Supervise, WhatTheWorkerLeftInItsGroupIsSweptAway) {
  // The orphan comes to us, so that its end can be waited for.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  Launcher launcher("child");
  const std::string text = launcher.line();
  ASSERT_TRUE(text.starts_with("child ")) << text;
  const pid_t child = std::atoi(text.c_str() + 6);
  EXPECT_EQ(launcher.exit_code(), 0);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST(Supervise, TheWorkerHasItsOwnGroupOneThreadAndNoForeignDescriptors) {
  const int leaked = open("/dev/null", O_RDONLY);  // without O_CLOEXEC, as a careless library would
  Launcher launcher("environment");
  EXPECT_EQ(launcher.line(), "args work run");
  EXPECT_EQ(launcher.line(), "OMP_NUM_THREADS=1");
  EXPECT_EQ(launcher.line(), "MKL_NUM_THREADS=");
  EXPECT_EQ(launcher.line(), "own group");
  EXPECT_EQ(launcher.line(), "only the life pipe");
  EXPECT_EQ(launcher.exit_code(), 0);
  close(leaked);
}

TEST(Supervise, DeathBySignalIsNamedWithTheWayBack) {
  SuperviseOptions options;
  options.log_hint = "runs/x/logs/rank-0.log";
  options.resume_hint = "tandem resume x";
  Launcher launcher("die " + std::to_string(SIGSEGV), options);
  EXPECT_EQ(launcher.exit_code(), 1);
  const std::string said = launcher.said();
  EXPECT_NE(said.find("the worker died of signal 11 (Segmentation fault)"), std::string::npos) << said;
  EXPECT_NE(said.find("runs/x/logs/rank-0.log"), std::string::npos) << said;
  EXPECT_NE(said.find("`tandem resume x`"), std::string::npos) << said;
}

TEST(Supervise, AKillTheKernelCountedIsOutOfMemory) {
  SuperviseOptions options;
  options.count_oom_kills = [count = 0]() mutable { return std::optional<uint64_t>(count++); };
  Launcher launcher("die 9", options);
  EXPECT_EQ(launcher.exit_code(), 4);
  EXPECT_NE(launcher.said().find("out of memory"), std::string::npos);
}

TEST(Supervise, AKillNobodyCountedIsSaidToBeLikelyMemory) {
  SuperviseOptions options;
  options.count_oom_kills = [] { return std::optional<uint64_t>(7); };
  Launcher launcher("die 9", options);
  EXPECT_EQ(launcher.exit_code(), 1);
  EXPECT_NE(launcher.said().find("most likely the machine ran out of memory"), std::string::npos);
}

TEST(Supervise, AWorkerProgramThatIsNotThereIsAnError) {
  Launcher launcher("missing");
  EXPECT_EQ(launcher.exit_code(), 1);
  const std::string said = launcher.said();
  EXPECT_NE(said.find("cannot start the worker /nonexistent/tandem-worker"), std::string::npos) << said;
  EXPECT_NE(said.find("No such file"), std::string::npos) << said;
}

}  // namespace
}  // namespace tandem
