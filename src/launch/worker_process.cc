#include "launch/worker_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/errors.h"
#include "base/plain_file.h"

extern char** environ;

namespace tandem {
namespace {

constexpr double kDieSeconds = 3;  // for a process that was sent SIGKILL
constexpr int kLookForStopMs = 100;

struct WorkerPipe {
  int read_end = -1, write_end = -1;
  WorkerPipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
      throw IoError("cannot make a pipe for the worker", errno, "close other programs and try again");
    read_end = ends[0];
    write_end = ends[1];
  }
  ~WorkerPipe() {
    if (read_end >= 0) close(read_end);
    if (write_end >= 0) close(write_end);
  }
  int take_write_end() { return std::exchange(write_end, -1); }
};

std::vector<std::string> merged_environment(const WorkerCommand& command, int life_fd) {
  auto added = command.environment;
  for (const auto& [name, fd] : command.inherit) added.emplace_back(name, std::to_string(fd));
  added.emplace_back("TANDEM_LIFE_FD", std::to_string(life_fd));
  std::vector<std::string> merged;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    bool replaced = false;
    for (const auto& [name, value] : added) replaced = replaced || text.starts_with(name + "=");
    if (!replaced) merged.push_back(text);
  }
  for (const auto& [name, value] : added) merged.push_back(name + "=" + value);
  return merged;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

// A log in a run's folder is opened where it stands, and no link is followed. What is no file of a run is opened as it
// is: /dev/null, and the memory in which a supervisor keeps its worker's words (/proc/self/fd/N).
int open_log(const std::filesystem::path& log) {
  const std::string name = log.string();
  if (name != "/dev/null" && !name.starts_with("/proc/self/fd/"))
    return open_plain_file(log, O_WRONLY | O_APPEND, 0644);
  const int fd = open(name.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) throw IoError(fmt::format("cannot open {}", name), errno, "close other programs and try again");
  return fd;
}

// Between fork and exec: system calls only.
[[noreturn]] void become_worker(int program, char** arguments, char** environment, pid_t launcher, const int* inherit,
                                size_t inherited, int log_fd, int error_fd, int death_signal) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, death_signal);
  if (getppid() != launcher) _exit(1);  // the launcher died before the signal was armed
  for (const int signal_number : {SIGINT, SIGTERM, SIGCHLD, SIGTSTP, SIGCONT, SIGPIPE}) signal(signal_number, SIG_DFL);
  signal(SIGUSR1, SIG_IGN);  // "save and go on" before there is anything to save must not be death
  signal(SIGTTOU, SIG_IGN);  // its group is not the terminal's; progress is shown all the same
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  if (log_fd >= 0) {
    dup2(log_fd, STDOUT_FILENO);
    dup2(log_fd, STDERR_FILENO);
  }
#ifdef SYS_close_range
  syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
#endif
  for (size_t i = 0; i < inherited; ++i) fcntl(inherit[i], F_SETFD, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  syscall(SYS_execveat, program, "", arguments, environment, AT_EMPTY_PATH);
  const int error = errno;
  [[maybe_unused]] const auto written = write(error_fd, &error, sizeof error);
  _exit(127);
}

// True once the process has begun, or says why it can't. Where that hangs (a disk that does not answer) a stop of this
// process is not held up: it is false then, and the process one that is in its start.
bool begins_or_fails(int failure_fd) {
  pollfd wait{failure_fd, POLLIN, 0};
  while (poll(&wait, 1, kLookForStopMs) <= 0) {
    sigset_t pending;
    if (sigpending(&pending) != 0) continue;
    for (const int number : {SIGINT, SIGTERM, SIGHUP})
      if (sigismember(&pending, number) == 1) return false;
  }
  return true;
}

}  // namespace

WorkerProcess WorkerProcess::start(const WorkerCommand& command) {
  command.program->check_unchanged();
  WorkerPipe life, failure;
  std::vector<std::string> arguments = {command.program->path().string()};
  arguments.insert(arguments.end(), command.arguments.begin(), command.arguments.end());
  std::vector<std::string> environment = merged_environment(command, life.read_end);
  const std::vector<char*> argument_pointers = pointers(arguments), environment_pointers = pointers(environment);

  WorkerProcess worker;
  std::vector<int> inherit = {life.read_end};
  for (const auto& [name, fd] : command.inherit) inherit.push_back(fd);
  int log_fd = -1;
  if (!command.log.empty()) {
    try {
      log_fd = open_log(command.log);
    } catch (const IoError& error) {  // a full disk must not cost a worker
      worker.log_error_ = error.error_number();
      log_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    }
  }

  const pid_t launcher = getpid();
  worker.pid_ = fork();
  if (worker.pid_ < 0) {
    const int error = errno;
    if (log_fd >= 0) close(log_fd);
    throw IoError("cannot start the worker", error, "end other processes, or raise `ulimit -u`");
  }
  if (worker.pid_ == 0) {
    become_worker(command.program->fd(), const_cast<char**>(argument_pointers.data()),
                  const_cast<char**>(environment_pointers.data()), launcher, inherit.data(), inherit.size(), log_fd,
                  failure.write_end, command.death_signal);
  }
  if (log_fd >= 0) close(log_fd);
  setpgid(worker.pid_, worker.pid_);  // also here: whoever comes first, the group exists before a signal is sent to it
  worker.life_fd_ = life.take_write_end();
  worker.pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, worker.pid_, 0));  // close-on-exec by itself

  close(failure.take_write_end());
  int error = 0;
  ssize_t got = 0;
  if (begins_or_fails(failure.read_end)) do {
      got = read(failure.read_end, &error, sizeof error);
    } while (got < 0 && errno == EINTR);
  if (got == sizeof error) {  // nothing is read if exec closed the pipe
    throw IoError(fmt::format("cannot start the worker {}", arguments[0]), error,
                  "build it with `make build`; it stands beside the `tandem` program");
  }
  return worker;
}

WorkerProcess::WorkerProcess(WorkerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::exchange(other.pidfd_, -1)),
      life_fd_(std::exchange(other.life_fd_, -1)),
      log_error_(other.log_error_) {}

WorkerProcess::~WorkerProcess() {
  if (pid_ > 0) {
    kill_group();
    if (ends_soon()) reap();  // else it hangs in the kernel, and ends by its parent-death signal
  }
  if (pidfd_ >= 0) close(pidfd_);
  if (life_fd_ >= 0) close(life_fd_);
}

void WorkerProcess::send(int signal) const {
  if (pid_ > 0) kill(pid_, signal);  // not yet reaped, so the number is still its own
}

void WorkerProcess::stop() const {
  send(SIGSTOP);
  siginfo_t info{};
  while (waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
}

void WorkerProcess::kill_group() const {
  if (pid_ > 0) kill(-pid_, SIGKILL);
}

bool WorkerProcess::ended() const {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_;
}

bool WorkerProcess::ends_soon() const {
  for (const double end = monotonic_seconds() + kDieSeconds; !ended();) {
    if (monotonic_seconds() > end) return false;
    const timespec moment{0, 1'000'000};
    nanosleep(&moment, nullptr);
  }
  return true;
}

int WorkerProcess::reap() {
  siginfo_t info{};
  while (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  kill_group();  // what the worker left behind; while it is a zombie nobody else can have its group's number
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return status;
}

}  // namespace tandem
