#include "rl/gym/gym_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "base/errors.h"
#include "base/printable.h"

extern char** environ;

namespace tandem {

extern const char* const kGymServerText;  // rl/gym/gym_server.py

namespace {

constexpr double kStartSeconds = 120;   // imports from a cold disk
constexpr int64_t kForgiveAfter = 500;  // exchanges without a failure that undo one
constexpr size_t kLongestMessage = 1 << 16;

// Of an environment: any bytes, on one line.
std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  return printable(text);
}

void log(const std::string& text) {
  fmt::print(stderr, "{} warn  {}\n", utc_stamp(), text);
  std::fflush(stderr);
}

// The program's text as a file that has no name.
int text_descriptor() {
  const int fd = static_cast<int>(syscall(SYS_memfd_create, "gym_server.py", 1U /* MFD_CLOEXEC */));
  if (fd < 0) throw IoError("cannot start Python", errno, "free memory and try again");
  const size_t size = std::strlen(kGymServerText);
  if (write(fd, kGymServerText, size) != static_cast<ssize_t>(size) || lseek(fd, 0, SEEK_SET) != 0) {
    close(fd);
    throw IoError("cannot start Python", errno, "free memory and try again");
  }
  return fd;
}

// One thread each: the worker's processes share the cores already, and sums in threads have no fixed order.
std::vector<std::string> python_environment() {
  std::vector<std::string> all;
  for (char** entry = environ; *entry; ++entry) all.emplace_back(*entry);
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"})
    if (!std::getenv(name)) all.push_back(fmt::format("{}=1", name));
  if (!std::getenv("PYTHONHASHSEED")) all.emplace_back("PYTHONHASHSEED=0");  // else sets have another order each time
  return all;
}

// Between fork and exec: system calls only.
[[noreturn]] void become_python(char** arguments, char** environment, pid_t parent, int text, int socket, int error) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  for (const int number : {SIGTERM, SIGUSR1, SIGHUP, SIGPIPE, SIGCHLD}) signal(number, SIG_DFL);
  dup2(text, STDIN_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);  // what an environment prints belongs into the log
#ifdef SYS_close_range
  syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
#endif
  fcntl(socket, F_SETFD, 0);
  execvpe(arguments[0], arguments, environment);
  const int number = errno;
  [[maybe_unused]] const auto written = write(error, &number, sizeof number);
  _exit(127);
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

std::vector<std::string> GymProcess::interpreters() {
  std::vector<std::string> found;
  const auto add = [&](const std::string& path) {
    if (access(path.c_str(), X_OK) == 0) found.push_back(path);
  };
  if (const char* active = std::getenv("VIRTUAL_ENV"); active && *active) add(std::string(active) + "/bin/python3");
  add(TANDEM_PROJECT_PYTHON);
  found.emplace_back("python3");
  return found;
}

GymProcess::GymProcess(GymOptions options) : options_(std::move(options)) {
  const std::vector<std::string> candidates =
      options_.python.empty() ? interpreters() : std::vector<std::string>{options_.python};
  std::string tried, pip;
  for (const std::string& python : candidates) {
    const std::string why = start(python);
    if (why.empty()) {
      python_ = python;
      return;
    }
    tried += fmt::format("{}{}: {}", tried.empty() ? "" : "; ", python, why);
    if (pip.empty() && why.find("gymnasium") != std::string::npos) pip = python;
  }
  if (pip.empty())
    throw ConfigError("no Python can be started", tried,
                      "install python3, or name one with --set env.python=/path/to/python3");
  throw ConfigError(fmt::format("gymnasium is not installed, which {} needs", options_.environment), tried,
                    fmt::format("run `{} -m pip install gymnasium`{}, or name a Python that has it with --set "
                                "env.python=/path/to/python3",
                                pip, pip == TANDEM_PROJECT_PYTHON ? " (or `scripts/setup.sh gym`)" : ""));
}

GymProcess::~GymProcess() { stop(); }

std::string GymProcess::start(const std::string& python) {
  int sockets[2], failure[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0 || pipe2(failure, O_CLOEXEC) != 0)
    throw IoError("cannot start Python", errno, "free memory and try again");
  const int text = text_descriptor();
  std::vector<std::string> arguments{python, "-u", "-", std::to_string(sockets[1])}, environment = python_environment();
  const std::vector<char*> argument_pointers = pointers(arguments), environment_pointers = pointers(environment);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0)
    become_python(const_cast<char**>(argument_pointers.data()), const_cast<char**>(environment_pointers.data()), parent,
                  text, sockets[1], failure[1]);
  const int fork_error = errno;
  for (const int fd : {sockets[1], failure[1], text}) close(fd);
  socket_ = sockets[0];
  int error = 0;
  if (pid_ > 0 && read(failure[0], &error, sizeof error) != sizeof error) error = 0;  // nothing is read if exec did it
  close(failure[0]);
  if (pid_ < 0) throw IoError("cannot start Python", fork_error, "end other processes, or raise `ulimit -u`");
  if (error) {
    stop();
    return std::strerror(error);
  }
  const nlohmann::json arguments_of = nlohmann::json::parse(options_.arguments);
  const std::string ask = nlohmann::json{
      {"environment", options_.environment},
      {"arguments", arguments_of},
      {"live", options_.live +
                   kSlots}}.dump();
  std::string answer;
  if (send(socket_, ask.data(), ask.size(), MSG_NOSIGNAL) < 0 || !receive(answer, kStartSeconds)) {
    const std::string why = answer.empty() ? death() : answer;
    stop();
    if (why.find("status 1") != std::string::npos && facts_.width == 0) return "it is no Python 3.9 or newer";
    // Not the user's error: the folder is kept, with what Python said last.
    throw Error(ExitCode::kFailed, fmt::format("{} cannot be started", options_.environment),
                fmt::format("{}: {}", python, why), "what it said last is in the run's logs/rank-*.log");
  }
  const nlohmann::json reply = nlohmann::json::parse(answer);
  if (reply.contains("error")) {
    stop();
    if (reply.at("error") == "gymnasium") return fmt::format("no gymnasium ({})", reply.at("why").get<std::string>());
    throw ConfigError(reply.at("what"), reply.at("why"), reply.at("do"));
  }
  GymFacts facts{reply.at("width"),   reply.at("actions"), reply.at("action_size"),
                 reply.at("longest"), reply.at("exact"),   ""};
  for (const auto& [name, version] : reply.at("versions").items())
    facts.versions += fmt::format("{}{} {}", facts.versions.empty() ? "" : ", ", name, version.get<std::string>());
  facts_ = facts;
  return "";
}

int64_t GymProcess::action_bytes() const {
  if (facts_.action_size > 0) return facts_.action_size * static_cast<int64_t>(sizeof(float));
  return facts_.actions <= 256 ? 1 : facts_.actions <= 65536 ? 2 : 4;
}

void GymProcess::share_memory(int64_t longest) {
  longest_ = longest;
  const auto place = [&](std::byte* base) {  // base null: only counts
    size_t at = 64;
    const auto array = [&](auto*& pointer, int64_t count) {
      pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(base + at);
      at = (at + static_cast<size_t>(count) * sizeof(*pointer) + 63) / 64 * 64;
    };
    array(slots_.before, kSlots), array(slots_.after, kSlots);
    array(slots_.seed, kSlots), array(slots_.count, kSlots);
    array(slots_.op, kSlots), array(slots_.action, kSlots), array(slots_.status, kSlots), array(slots_.end, kSlots);
    array(slots_.reward, kSlots), array(slots_.seen, kSlots * facts_.width);
    array(slots_.numbers, kSlots * facts_.action_size);
    array(slots_.history, kSlots * longest_ * action_bytes());
    return at;
  };
  memory_ = SharedMemory::create("tandem-gym", place(nullptr));
  place(memory_.bytes().data());
  hand_over_memory();
}

void GymProcess::hand_over_memory() {
  std::string shape = nlohmann::json{
      {"bytes", memory_.bytes().size()},
      {"slots", kSlots},
      {"width", facts_.width},
      {"longest", longest_},
      {"action_size", facts_.action_size},
      {"action_bytes",
       action_bytes()}}.dump();
  iovec piece{shape.data(), shape.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = memory_.fd();
  std::memcpy(CMSG_DATA(head), &fd, sizeof fd);
  // A process that died in between is found by the next exchange.
  [[maybe_unused]] const auto sent = sendmsg(socket_, &message, MSG_NOSIGNAL);
}

// False: the process closed its side (the message is empty), or did nothing for that long (the message says so).
bool GymProcess::receive(std::string& message, double quiet_seconds) {
  const auto* const beats = memory_ ? reinterpret_cast<std::atomic<int64_t>*>(memory_.bytes().data()) : nullptr;
  int64_t seen = beats ? beats->load(std::memory_order_relaxed) : 0;
  double since = monotonic_seconds();
  message.clear();
  while (true) {
    pollfd wait{socket_, POLLIN, 0};
    const int ready = poll(&wait, 1, 100);
    if (ready > 0) break;
    const double now = monotonic_seconds();
    if (const int64_t beat = beats ? beats->load(std::memory_order_relaxed) : 0; beat != seen) {
      seen = beat;
      since = now;
    }
    if (now - since < quiet_seconds) continue;
    message = fmt::format("it did nothing for {:g} s", quiet_seconds);
    return false;
  }
  message.resize(kLongestMessage);
  ssize_t got;
  do {
    got = recv(socket_, message.data(), message.size(), 0);
  } while (got < 0 && errno == EINTR);
  message.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return got > 0;
}

std::string GymProcess::death() const {
  int status = 0;
  // It closed its socket, so it ends; a moment is all it needs.
  const double until = monotonic_seconds() + 2;
  pid_t ended = 0;
  siginfo_t info{};
  while (monotonic_seconds() < until) {
    if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_) {
      ended = pid_;
      break;
    }
    pollfd none{-1, 0, 0};
    poll(&none, 1, 2);
  }
  if (!ended) return "its process closed the connection";
  status = info.si_status;
  if (info.si_code == CLD_EXITED) return fmt::format("its process ended with status {}", status);
  return fmt::format("its process was ended by signal {} ({})", status, strsignal(status));
}

void GymProcess::stop() {
  if (socket_ >= 0) close(std::exchange(socket_, -1));
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  pid_ = -1;
}

void GymProcess::failed(const std::string& why, int64_t n) {
  ++failures_;
  good_ = 0;
  int64_t left = 0, first = -1;
  for (int64_t i = 0; i < n; ++i)
    if (slots_.op[i] != kNothing && !(slots_.status[i] & kDone)) {
      first = first < 0 ? i : first;
      ++left;
    }
  const std::string where =
      first < 0 ? ""
                : fmt::format(" (seed {}, step {} of its episode{})", slots_.seed[first], slots_.count[first] + 1,
                              left > 1 ? fmt::format("; {} environments wait", left) : "");
  const std::string what = fmt::format("environment {} failed{}: {}", options_.environment, where, one_line(why));
  log(what);
  if (failures_ > options_.restarts)
    throw Error(
        ExitCode::kFailed, fmt::format("the environment {} fails again and again", options_.environment),
        fmt::format("{}{}; {} restarts were not enough", one_line(why), where, options_.restarts),
        "its traceback is in the run's logs/rank-*.log; mend it and go on with `tandem resume`, or allow more by "
        "--set env.restarts=n");
  note_ = fmt::format("{}; restart {} of {}", what, failures_, options_.restarts);
}

void GymProcess::exchange(int64_t n) {
  while (true) {
    for (int64_t i = 0; i < n; ++i)
      if (slots_.op[i] != kNothing) slots_.status[i] = 0;
    const int32_t count = static_cast<int32_t>(n);
    std::string answer;
    std::atomic_thread_fence(std::memory_order_release);
    const bool sent = send(socket_, &count, sizeof count, MSG_NOSIGNAL) == sizeof count;
    const bool answered = sent && receive(answer, options_.timeout_seconds);
    std::atomic_thread_fence(std::memory_order_acquire);
    const bool whole = answered && answer.size() == sizeof count;
    if (whole) {
      if (++good_ % kForgiveAfter == 0 && failures_ > 0) --failures_;
      return;
    }
    if (answered) {  // an exception: that environment is gone, the process goes on
      const auto reply = nlohmann::json::parse(answer.substr(sizeof count), nullptr, false);
      if (reply.is_discarded()) throw std::logic_error("the environment's process sent an invalid message");
      failed(reply.at("error").get<std::string>(), n);
    } else {
      failed(answer.empty() ? death() : answer, n);
      const GymFacts before = facts_;
      stop();
      if (const std::string why = start(python_); !why.empty())
        throw Error(ExitCode::kFailed, fmt::format("the environment {} cannot be started again", options_.environment),
                    why, "go on with `tandem resume` once it can be");
      if (facts_.width != before.width || facts_.actions != before.actions || facts_.action_size != before.action_size)
        throw Error(ExitCode::kFailed, fmt::format("the environment {} is another one now", options_.environment),
                    fmt::format("its observations had {} numbers and its actions {}, now {} and {}", before.width,
                                before.actions + before.action_size, facts_.width, facts_.actions + facts_.action_size),
                    "put back the environment that the run began with, then `tandem resume`");
      hand_over_memory();
    }
    for (int64_t i = 0; i < n; ++i)  // what was done is done: its results are in the memory
      if (slots_.status[i] != 0) slots_.op[i] = kNothing;
  }
}

std::string GymProcess::take_note() { return std::exchange(note_, ""); }

}  // namespace tandem
