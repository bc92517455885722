#include "jobs/job_process.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/errors.h"
#include "base/plain_file.h"
#include "base/printable.h"
#include "launch/run_lock.h"
#include "telemetry/event_log.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr std::streamoff kLastWords = 64 << 10;  // of the log are looked at for the reason of an end

WorkerCommand command_of(const SetJob& job, std::shared_ptr<const WorkerProgram> program,
                         const std::vector<DeviceSpec>& devices, const std::vector<std::string>& unset,
                         const fs::path& log, int gate, const PinnedRecipe* recipe) {
  WorkerCommand command{
      .program = std::move(program),
      .arguments = {"resume", job.dir.string(), "--devices", devices_text(devices), "--json", "--quiet", "--no-color"},
      .environment = {},
      .inherit = {},
      .death_signal = SIGTERM,
      .log = log};
  for (const std::string& name : unset) command.environment.emplace_back(name, "");
  if (recipe) command.inherit.emplace_back(PinnedRecipe::kVariable, recipe->fd());
  if (gate >= 0) command.inherit.emplace_back("TANDEM_START_FD", gate);
  return command;
}

int64_t size_of(const fs::path& path) {
  std::error_code none;
  const auto size = fs::file_size(path, none);
  return none ? 0 : static_cast<int64_t>(size);
}

// The error object that the job printed last, in words; else its last line.
std::string error_in(const fs::path& log, int64_t begin) {
  std::ifstream file = read_plain_file(log, std::ios::ate);
  file.seekg(std::max<std::streamoff>(begin, file.tellg() - kLastWords));
  std::string line, last, error;
  while (std::getline(file, line)) {
    if (line.empty()) continue;
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (object.is_object() && object.contains("error") && object["error"].is_object()) {
      error = fmt::format("{} ({})", object["error"].value("what", ""), object["error"].value("why", ""));
    } else if (!object.is_object()) {
      last = line;
    }
  }
  std::string text = error.empty() ? last : error;
  if (text.size() > 300) text = text.substr(0, 300) + "...";
  return printable(text);
}

std::optional<uint64_t> tree_bytes(pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid)), children(fmt::format("/proc/{0}/task/{0}/children", pid));
  if (!status || !children) return std::nullopt;
  uint64_t bytes = 0;
  for (std::string line; std::getline(status, line);) {
    unsigned long long kib = 0;
    if (std::sscanf(line.c_str(), "VmRSS: %llu", &kib) == 1) bytes = kib << 10;
  }
  for (pid_t child = 0; children >> child;) bytes += tree_bytes(child).value_or(0);
  return bytes;
}

}  // namespace

bool MetricsTail::look(JobStatus& status) {
  bool anew = false;
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would hold us
  if (fd < 0) return false;
  struct stat about {};
  if (fstat(fd, &about) == 0) {
    if (!parser_ || about.st_ino != file_ || about.st_size < at_) {  // a resume cuts what came after its checkpoint
      anew = parser_ != nullptr;
      file_ = about.st_ino;
      at_ = 0;
      status.step = 0;
      parser_ = std::make_unique<MetricsParser>([this](const StepRecord& record) {
        status_->step = record.step;
        take_record(record, *status_);
      });
    }
    status_ = &status;
    char block[64 << 10];
    ssize_t got;
    while ((got = pread(fd, block, sizeof block, at_)) > 0) {
      parser_->feed({block, static_cast<size_t>(got)});
      at_ += got;
    }
  }
  close(fd);
  return anew;
}

JobProcess::JobProcess(const SetJob& job, std::shared_ptr<const WorkerProgram> program,
                       const std::vector<DeviceSpec>& devices, const std::vector<std::string>& unset_variables,
                       fs::path log, bool wait)
    : log_(std::move(log)),
      log_begin_(size_of(log_)),
      recipe_(job.recipe_toml.empty() ? nullptr : std::make_unique<PinnedRecipe>(job.recipe_toml)),
      gate_(wait),
      process_(WorkerProcess::start(
          command_of(job, std::move(program), devices, unset_variables, log_, gate_.theirs(), recipe_.get()))) {
  gate_.give();
}

JobProcess::Gate::Gate(bool wait) {
  int ends[2];
  if (!wait) return;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw IoError("cannot make a pair of sockets", errno, "close other programs, or raise `ulimit -n`");
  theirs_ = ends[0];
  ours_ = ends[1];
}

void JobProcess::Gate::give() {
  if (theirs_ >= 0) close(theirs_);
  theirs_ = -1;
}

void JobProcess::Gate::open() {
  const char word = 1;
  if (ours_ >= 0) ::send(ours_, &word, 1, MSG_NOSIGNAL);  // where it has just died, its end is seen soon
  reset();
}

void JobProcess::Gate::reset() {
  give();
  if (ours_ >= 0) close(ours_);
  ours_ = -1;
}

std::optional<uint64_t> JobProcess::memory_bytes() const { return tree_bytes(process_.pid()); }

bool JobEnd::is_final() const {
  switch (static_cast<ExitCode>(code)) {
    case ExitCode::kUsage:
    case ExitCode::kCheckFailed:
    case ExitCode::kOutOfMemory:
    case ExitCode::kCheckpointUnusable:
    case ExitCode::kGuardStopped:
      return true;
    default:
      return false;
  }
}

JobEnd JobProcess::reap() {
  const int status = process_.reap();
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    const std::string name = number == SIGKILL ? "SIGKILL" : number == SIGSEGV ? "SIGSEGV" : strsignal(number);
    return {128 + number, fmt::format("its process was killed ({})", name)};
  }
  const int code = WEXITSTATUS(status);
  const std::string error = error_in(log_, log_begin_);
  return {code, fmt::format("its process ended with code {}{}{}", code, error.empty() ? "" : ": ", error)};
}

int joined_so_far(const fs::path& dir) {
  int count = 0;
  for (const RunEvent& event : read_events(dir / "events.jsonl"))
    if (event.kind == "plan" && event.text.ends_with(" joins")) ++count;
  return count;
}

void wait_until_unused(const fs::path& dir, double seconds) {
  for (const double end = monotonic_seconds() + seconds;;) {
    try {
      const RunLock lock(dir);
      return;
    } catch (const ConfigError&) {
      if (monotonic_seconds() > end) throw;
    }
    const timespec moment{0, 50'000'000};
    nanosleep(&moment, nullptr);
  }
}

}  // namespace tandem
