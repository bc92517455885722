#include "command/child_output.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace tandem {
namespace {

struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() {
    if (pipe2(ends, O_CLOEXEC) != 0) ends[0] = ends[1] = -1;
  }
  ~Pipe() { close_end(0), close_end(1); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  bool ok() const { return ends[0] >= 0; }
  void close_end(int which) {
    if (ends[which] >= 0) close(ends[which]);
    ends[which] = -1;
  }
};

// All of it is read, also what is not kept: a child that is not read from would wait for ever.
std::string read_all(int fd, size_t most) {
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(fd, buffer, sizeof buffer)) != 0;) {
    if (got < 0 && errno != EINTR) break;
    if (got > 0 && text.size() < most) text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

[[noreturn]] void become(const ChildProgram& program, std::vector<char*>& argv, pid_t parent, int out, int trouble) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it died before that
  if (program.silent)
    if (const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC); nowhere >= 0) dup2(nowhere, STDERR_FILENO);
  dup2(out, STDOUT_FILENO);
  for (const auto& [name, value] : program.environment) setenv(name.c_str(), value.c_str(), 1);
  execvp(argv[0], argv.data());
  const int why = errno;
  [[maybe_unused]] const auto sent = write(trouble, &why, sizeof why);
  _exit(127);
}

}  // namespace

std::string ChildOutput::ending() const {
  if (!trouble.empty()) return fmt::format("it could not be started: {}", trouble);
  return signal ? fmt::format("signal {}", signal) : fmt::format("code {}", code);
}

ChildOutput run_child(const ChildProgram& program) {
  ChildOutput output;
  Pipe out, failure;
  std::vector<std::string> words = program.words;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t child = out.ok() && failure.ok() ? fork() : -1;
  if (child < 0) {
    output.trouble = strerror(errno);
    return output;
  }
  if (child == 0) become(program, argv, parent, out.ends[1], failure.ends[1]);
  out.close_end(1);
  failure.close_end(1);
  output.text = read_all(out.ends[0], program.most_text);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) output.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) output.signal = WTERMSIG(status);
  int why = 0;
  if (read(failure.ends[0], &why, sizeof why) == sizeof why) output.trouble = strerror(why);
  return output;
}

}  // namespace tandem
