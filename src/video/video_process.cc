#include "video/video_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/printable.h"

extern char** environ;

namespace tandem {
namespace {

constexpr int kStallMs = 120'000;
constexpr size_t kLongestJsonLine = 65536;

}  // namespace

void VideoProcess::Descriptor::shut() {
  if (fd >= 0) close(fd);
  fd = -1;
}

void VideoProcess::fail_to_start(int why) const {
  throw IoError(fmt::format("cannot start {}", printable(program_.string())), why, "look whether it is there");
}

VideoProcess::VideoProcess(const std::filesystem::path& program, std::vector<std::string> words, Talk talk)
    : program_(program) {
  int ends[2] = {-1, -1};
  // Sockets, so that a process that is gone is an error here and no SIGPIPE.
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail_to_start(errno);
  ours_ = Descriptor(ends[0]);
  const Descriptor theirs(ends[1]);
  words_said_ = Descriptor(memfd_create("words", MFD_CLOEXEC));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const bool listen = talk == Talk::kListen;
  posix_spawn_file_actions_adddup2(&actions, theirs.fd, listen ? STDOUT_FILENO : STDIN_FILENO);
  posix_spawn_file_actions_addopen(&actions, listen ? STDIN_FILENO : STDOUT_FILENO, "/dev/null", O_RDWR, 0);
  posix_spawn_file_actions_adddup2(&actions, words_said_.fd, STDERR_FILENO);
  words.insert(words.begin(), program.string());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int failed = posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed == 0) return;
  pid_ = -1;
  fail_to_start(failed);
}

VideoProcess::~VideoProcess() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  wait_for_end();
}

bool VideoProcess::read_exactly(uint8_t* to, size_t size) {
  while (size > 0) {
    pollfd ready{ours_.fd, POLLIN, 0};
    const int polled = poll(&ready, 1, kStallMs);
    if (polled < 0 && errno == EINTR) continue;
    if (polled == 0) {
      stalled_ = true;
      return false;
    }
    const ssize_t got = read(ours_.fd, to, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

nlohmann::json VideoProcess::read_line() {
  std::string line;
  uint8_t c = 0;
  while (line.size() < kLongestJsonLine && read_exactly(&c, 1) && c != '\n') line += static_cast<char>(c);
  nlohmann::json read = c == '\n' ? nlohmann::json::parse(line, nullptr, false) : nlohmann::json();
  return read.is_object() ? read : nlohmann::json();
}

bool VideoProcess::send_all(const void* from, size_t size) {
  const auto* bytes = static_cast<const uint8_t*>(from);
  while (size > 0) {
    const ssize_t sent = send(ours_.fd, bytes, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

int VideoProcess::wait_for_end() {
  ours_.shut();
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  signal_ = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string VideoProcess::ending() {
  if (stalled_) return fmt::format("nothing came for {} seconds", kStallMs / 1000);
  const int code = pid_ > 0 ? wait_for_end() : -1;
  if (signal_ == SIGXCPU || signal_ == SIGKILL) return "it took more time or memory than it may";
  if (signal_ != 0) return fmt::format("signal {} ended tandem-video", signal_);
  std::string said = words();
  return said.empty() ? fmt::format("tandem-video ended with code {}", code) : said;
}

std::string VideoProcess::words() const {
  char text[600] = {};
  const ssize_t got = pread(words_said_.fd, text, sizeof text - 1, 0);
  std::string said(text, got > 0 ? static_cast<size_t>(got) : 0);
  while (!said.empty() && said.back() == '\n') said.pop_back();
  return printable(said);
}

}  // namespace tandem
