#include "apps/chess/uci/engine_process.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "apps/chess/uci/lasting_thread.h"
#include "base/clock.h"
#include "base/errors.h"
#include "base/printable.h"
#include "world/chess/players/player.h"

namespace tandem::chess {
namespace {

constexpr double kEndSeconds = 2;  // between the end of its output and its own
constexpr int kReadBytes = 16384;
constexpr int kLateReads = 4;  // of so many bytes: what a pipe holds. Else one who talks on would never be late

struct EnginePipe {
  int read_end = -1, write_end = -1;
  EnginePipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
      throw IoError("cannot start an engine", errno, "close other programs, or raise `ulimit -n`");
    read_end = ends[0], write_end = ends[1];
  }
  ~EnginePipe() {
    for (const int end : {read_end, write_end})
      if (end >= 0) close(end);
  }
  EnginePipe(const EnginePipe&) = delete;
  EnginePipe& operator=(const EnginePipe&) = delete;
  int keep(int& end) {  // ours from here on
    fcntl(end, F_SETFL, O_NONBLOCK);
    return std::exchange(end, -1);
  }
};

// Between fork and exec: system calls only.
[[noreturn]] void become_engine(char** words, pid_t parent, int in, int out, int err, int failure) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it died before that
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGPIPE, SIGUSR1, SIGXFSZ}) signal(number, SIG_DFL);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
#ifdef SYS_close_range
  syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
#endif
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execv(words[0], words);
  const int why = errno;
  [[maybe_unused]] const auto written = write(failure, &why, sizeof why);
  _exit(127);
}

// write() without SIGPIPE, whatever the program does about it.
ssize_t write_quietly(int fd, std::string_view text) {
  sigset_t pipe, before, pending;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  sigpending(&pending);
  const bool was_pending = sigismember(&pending, SIGPIPE) == 1;
  pthread_sigmask(SIG_BLOCK, &pipe, &before);
  const ssize_t written = write(fd, text.data(), text.size());
  const int error = errno;
  if (written < 0 && error == EPIPE && !was_pending) {
    const timespec now{};
    sigtimedwait(&pipe, nullptr, &now);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return written;
}

int milliseconds_until(double deadline) {
  const double left = std::ceil((deadline - monotonic_seconds()) * 1000);
  return static_cast<int>(std::clamp(left, 0.0, 1e9));
}

}  // namespace

EngineProcess::EngineProcess(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                             EngineBounds bounds)
    : bounds_(bounds) {
  EnginePipe in, out, err, failure;
  std::vector<std::string> line = {program.string()};
  line.insert(line.end(), arguments.begin(), arguments.end());
  std::vector<char*> words;
  for (std::string& word : line) words.push_back(word.data());
  words.push_back(nullptr);
  const pid_t parent = getpid();
  int error = 0;
  in_lasting_thread([&] {
    pid_ = fork();
    if (pid_ == 0) become_engine(words.data(), parent, in.read_end, out.write_end, err.write_end, failure.write_end);
    error = errno;
  });
  if (pid_ < 0) throw IoError("cannot start an engine", error, "end other processes, or raise `ulimit -u`");
  setpgid(pid_, pid_);  // also here: whoever comes first, the group exists before a signal is sent to it
  pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  if (pidfd_ < 0 && errno != ENOSYS) {
    error = errno;
    kill_group();
    throw IoError("cannot watch an engine", error, "close other programs, or raise `ulimit -n`");
  }
  close(std::exchange(failure.write_end, -1));
  ssize_t got = 0;
  do {
    got = read(failure.read_end, &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  if (got == sizeof error) {  // nothing is read if exec closed the pipe
    waitpid(pid_, nullptr, 0);
    if (pidfd_ >= 0) close(pidfd_);
    throw PlayerFault(PlayerFault::Kind::kNoEngine, fmt::format("cannot start {}", printable(line.front())),
                      strerror(error), "name a program that speaks UCI");
  }
  in_ = in.keep(in.write_end);
  out_ = out.keep(out.read_end);
  err_ = err.keep(err.read_end);
}

EngineProcess::~EngineProcess() {
  kill_group();
  for (const int fd : {pidfd_, in_, out_, err_})
    if (fd >= 0) close(fd);
}

void EngineProcess::kill_group() {
  if (reaped_) return;
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);  // it may have left its group; not reaped yet, so that the number is still its own
  while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
}

bool EngineProcess::ends_before(double deadline) {
  while (!reaped_) {
    pollfd wait{pidfd_, POLLIN, 0};
    poll(&wait, 1, milliseconds_until(deadline));
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_)
      kill_group();  // what it had started
    else if (monotonic_seconds() >= deadline)
      return false;
  }
  return true;
}

EngineProcess::Sent EngineProcess::send(std::string_view line, double deadline, int wake_fd, double woken_seconds) {
  std::string text(line);
  text += '\n';
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t written = write_quietly(in_, rest);
    if (written >= 0) {
      rest.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      if (monotonic_seconds() >= deadline) return Sent::kLate;
      pollfd waits[] = {{in_, POLLOUT, 0}, {err_, POLLIN, 0}, {wake_fd, POLLIN, 0}};
      poll(waits, 3, milliseconds_until(deadline));
      if (waits[1].revents) read_errors();
      if (waits[2].revents) deadline = std::min(deadline, monotonic_seconds() + woken_seconds), wake_fd = -1;
    } else if (errno != EINTR) {
      return Sent::kEnded;
    }
  }
  return Sent::kSent;
}

void EngineProcess::begin_output(size_t most, size_t a_second) {
  output_ = 0, most_ = most, a_second_ = a_second, late_reads_ = 0;
  output_began_ = monotonic_seconds();
}

bool EngineProcess::floods() const {
  if (buffer_.size() - begin_ > bounds_.longest_line) return true;
  if (output_ <= most_) return false;
  const double more = static_cast<double>(a_second_) * (monotonic_seconds() - output_began_);
  return static_cast<double>(output_ - most_) > more;
}

bool EngineProcess::take_line(std::string& line) {
  const size_t end = buffer_.find('\n', searched_);
  if (end == buffer_.npos && !(closed_ && begin_ < buffer_.size())) {
    searched_ = buffer_.size();
    return false;
  }
  line.assign(buffer_, begin_, end == buffer_.npos ? end : end - begin_);
  if (line.ends_with('\r')) line.pop_back();
  begin_ = searched_ = end == buffer_.npos ? buffer_.size() : end + 1;
  return true;
}

void EngineProcess::read_errors() {
  char bytes[kReadBytes];
  const ssize_t got = read(err_, bytes, sizeof bytes);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) close(std::exchange(err_, -1));
  if (got <= 0) return;
  errors_.append(bytes, static_cast<size_t>(got));
  if (errors_.size() > bounds_.last_words) errors_.erase(0, errors_.size() - bounds_.last_words);
}

bool EngineProcess::fill() {
  char bytes[kReadBytes];
  const ssize_t got = read(out_, bytes, sizeof bytes);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  buffer_.erase(0, begin_);
  searched_ -= begin_;
  begin_ = 0;
  buffer_.append(bytes, static_cast<size_t>(got));
  output_ += static_cast<size_t>(got);
  return got > 0;
}

EngineProcess::Got EngineProcess::read_line(std::string& line, double deadline, int wake_fd) {
  for (;;) {
    if (take_line(line)) return line.size() > bounds_.longest_line ? Got::kFlood : Got::kLine;
    if (closed_) return Got::kEnded;
    if (floods()) return Got::kFlood;
    pollfd waits[] = {{out_, POLLIN, 0}, {err_, POLLIN, 0}, {wake_fd, POLLIN, 0}, {pidfd_, POLLIN, 0}};
    poll(waits, 4, milliseconds_until(deadline));
    if (waits[1].revents) read_errors();
    if (waits[2].revents) return Got::kWoken;
    const bool late = monotonic_seconds() >= deadline;
    if (waits[0].revents && !(late && ++late_reads_ > kLateReads))
      closed_ = !fill();
    else if (waits[0].revents == 0 && waits[3].revents)
      closed_ = true;  // it ended; somebody whom it started holds its output open
    else if (late)
      return Got::kLate;
  }
}

std::string EngineProcess::ending() {
  if (!ends_before(monotonic_seconds() + kEndSeconds)) {
    kill_group();
    return "it closed its output";
  }
  if (WIFEXITED(status_)) return fmt::format("it ended with exit status {}", WEXITSTATUS(status_));
  return fmt::format("it was ended by signal {} ({})", WTERMSIG(status_), strsignal(WTERMSIG(status_)));
}

std::string EngineProcess::last_words() {
  if (err_ >= 0) read_errors();
  std::string words = errors_;
  while (!words.empty() && (words.back() == '\n' || words.back() == '\r')) words.pop_back();
  std::ranges::replace(words, '\n', ' ');
  return printable(words);
}

void EngineProcess::quit(double deadline) {
  if (send("quit", deadline) != Sent::kSent || !ends_before(deadline)) kill_group();
}

}  // namespace tandem::chess
