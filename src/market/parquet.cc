#include "market/parquet.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/errors.h"
#include "base/printable.h"

extern char** environ;

namespace tandem {

extern const char* const kParquetScript;  // market/parquet_to_csv.py

namespace {

constexpr int kNoPyarrow = 10, kNoParquet = 11, kNoColumns = 12;
constexpr size_t kMostBytes = 4'294'967'296;

struct Descriptor {
  int fd = -1;
  explicit Descriptor(int open_fd) : fd(open_fd) {
    if (fd < 0) throw IoError("cannot start Python to read Parquet", errno, "free memory and try again");
  }
  ~Descriptor() { close_now(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  void close_now() {
    if (fd >= 0) close(fd);
    fd = -1;
  }
};

int nameless_file(const char* name) { return static_cast<int>(syscall(SYS_memfd_create, name, 1U /* MFD_CLOEXEC */)); }

std::string all_of(int fd) {
  std::string out;
  char buffer[1 << 16];
  while (out.size() < kMostBytes) {
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    out.append(buffer, static_cast<size_t>(got));
  }
  return out;
}

struct ScriptResult {
  int code = 0;  // exit code; -1: it could not be started, -2: a signal ended it
  std::string text, why;
};

ScriptResult run_script(const std::string& python, int file, std::string required, std::string others) {
  Descriptor program(nameless_file("parquet_to_csv.py")), errors(nameless_file("errors"));
  const size_t size = std::strlen(kParquetScript);
  int ends[2] = {-1, -1};
  if (write(program.fd, kParquetScript, size) != static_cast<ssize_t>(size) || lseek(program.fd, 0, SEEK_SET) != 0 ||
      pipe2(ends, O_CLOEXEC) != 0)
    throw IoError("cannot start Python to read Parquet", errno, "free memory and try again");
  Descriptor from(ends[0]), to(ends[1]);
  // Above what dup2 below writes to, whatever numbers were free.
  Descriptor input(fcntl(file, F_DUPFD_CLOEXEC, 10));
  lseek(input.fd, 0, SEEK_SET);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  Descriptor high_program(fcntl(program.fd, F_DUPFD_CLOEXEC, 10)), high_errors(fcntl(errors.fd, F_DUPFD_CLOEXEC, 10)),
      high_to(fcntl(to.fd, F_DUPFD_CLOEXEC, 10));
  const int moves[][2] = {{high_program.fd, 0}, {high_to.fd, 1}, {high_errors.fd, 2}, {input.fd, 3}};
  for (const auto& [have, want] : moves) posix_spawn_file_actions_adddup2(&actions, have, want);
  std::vector<std::string> words{python, "-I", "-", std::move(required), std::move(others)};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, python.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return {-1, "", std::strerror(error)};
  to.close_now();
  high_to.close_now();
  ScriptResult result{0, all_of(from.fd), ""};
  const bool too_large = result.text.size() >= kMostBytes;
  from.close_now();  // a script that still writes ends by SIGPIPE
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  lseek(errors.fd, 0, SEEK_SET);
  result.why = printable(all_of(errors.fd).substr(0, 400));
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -2;
  if (WIFSIGNALED(status)) result.why = fmt::format("signal {} ended Python", WTERMSIG(status));
  if (too_large) result.code = -2, result.why = "it is more than 4 GiB of text";
  return result;
}

std::vector<std::string> pythons_to_try(const std::string& python) {
  if (!python.empty()) return {python};
  std::vector<std::string> found;
  const auto add = [&](const std::string& path) {
    if (access(path.c_str(), X_OK) == 0) found.push_back(path);
  };
  if (const char* active = std::getenv("VIRTUAL_ENV"); active && *active) add(std::string(active) + "/bin/python3");
  add(TANDEM_PROJECT_PYTHON);
  found.emplace_back("python3");
  return found;
}

}  // namespace

std::string parquet_as_csv(int fd, const std::string& name, std::span<const MarketColumn> columns,
                           const std::string& python, DataFindings& findings) {
  std::string required, others, tried;
  for (const MarketColumn& column : columns) {
    std::string& list = column.required ? required : others;
    list += (list.empty() ? "" : ",") + column.name;
  }
  const std::vector<std::string> candidates = pythons_to_try(python);
  for (const std::string& candidate : candidates) {
    ScriptResult result = run_script(candidate, fd, required, others);
    if (result.code == 0) return std::move(result.text);
    if (result.code == -1 || result.code == kNoPyarrow) {
      tried += fmt::format("{}{}: {}", tried.empty() ? "" : "; ", candidate, result.why);
      continue;
    }
    if (result.code == kNoParquet)
      findings.error("parquet", name, 0, fmt::format("this is no Parquet file: {}", result.why));
    else if (result.code == kNoColumns)
      findings.error("columns", name, 0, result.why);
    else
      findings.error("parquet", name, 0, fmt::format("it cannot be read: {}", result.why));
    return "";
  }
  throw ConfigError(fmt::format("pyarrow is not installed, which {} needs", printable(name)), tried,
                    fmt::format("run `{} -m pip install pyarrow`, or convert the file to CSV", candidates.front()));
}

}  // namespace tandem
