#include "telemetry/run_summary.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "base/clock.h"
#include "base/printable.h"
#include "telemetry/atomic_file.h"
#include "telemetry/run_lock_state.h"

namespace tandem {
namespace {

constexpr int64_t kFreshSeconds = 600;

nlohmann::json number_or_null(double value) { return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(); }

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

// Files of /proc have no size, so they are read by line.
std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// When a process started, in clock ticks since boot: with the pid it names one process for ever (pids come back). 0:
// none.
uint64_t process_start(int64_t pid) {
  const std::string text = first_line(fmt::format("/proc/{}/stat", pid));
  size_t at = text.rfind(')');  // the name may hold spaces and brackets; fields are counted after it
  // A zombie that nobody has reaped (usual in containers) is gone all the same.
  if (at != std::string::npos && at + 2 < text.size() && (text[at + 2] == 'Z' || text[at + 2] == 'X')) return 0;
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = text.find(' ', at + 1);
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at, nullptr, 10);
}

std::string boot_id() { return first_line("/proc/sys/kernel/random/boot_id"); }

// Containers number their processes each for itself.
std::string pid_space() {
  std::error_code none;
  return std::filesystem::read_symlink("/proc/self/ns/pid", none).string();
}

}  // namespace

nlohmann::json to_json(const RunSummary& summary) {
  return {{"status", summary.status},
          {"step", summary.step},
          {"seconds", number_or_null(summary.seconds)},
          {"loss", number_or_null(summary.loss)},
          {"digest", summary.digest},
          {"kind", summary.kind},
          {"exit_code", summary.exit_code},
          {"extra", summary.extra}};
}

nlohmann::json read_run_json(const std::filesystem::path& run_dir) {
  const auto text = read_small_file(run_dir / "run.json", 16 << 20);
  if (!text) return nlohmann::json::object();
  auto parsed = nlohmann::json::parse(*text, nullptr, false);
  return parsed.is_object() ? parsed : nlohmann::json::object();
}

void update_run_json(const std::filesystem::path& run_dir, const nlohmann::json& changes) {
  nlohmann::json run = read_run_json(run_dir);
  run.update(changes);
  run["format"] = 1;
  run["updated"] = utc_stamp();
  write_file_atomically(run_dir / "run.json", run.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void write_run_status(const std::filesystem::path& run_dir, const RunSummary& summary) {
  nlohmann::json changes = to_json(summary);
  if (summary.status == "running") {
    // A running run has no figures of its own yet; those of an earlier start stay.
    for (const char* key : {"seconds", "loss", "exit_code", "extra"}) changes.erase(key);
    if (summary.step == 0) changes.erase("step");
    for (const char* key : {"digest", "kind"})
      if (changes[key] == "") changes.erase(key);
    changes["process"] = {{"pid", ::getpid()},
                          {"start", process_start(::getpid())},
                          {"host", host_name()},
                          {"boot", boot_id()},
                          {"pid_space", pid_space()}};
  } else {
    changes["finished"] = utc_stamp();
  }
  update_run_json(run_dir, changes);
}

namespace {

struct RecordedProcess {
  int64_t pid = 0;
  uint64_t start = 0;
  std::string host, boot, pid_space;
};

RecordedProcess recorded_process(const nlohmann::json& process) {
  const auto text = [&](const char* key) {
    return process.contains(key) && process[key].is_string() ? process[key].get<std::string>() : std::string();
  };
  const auto number = [&](const char* key) {
    return process.contains(key) && process[key].is_number_integer() ? process[key].get<int64_t>() : int64_t{0};
  };
  return {number("pid"), static_cast<uint64_t>(number("start")), text("host"), text("boot"), text("pid_space")};
}

// Written to within the last minutes; clocks of machines differ.
bool is_written_to(const std::filesystem::path& run_dir) {
  for (const char* name : {"live.json", "run.json", "metrics.jsonl"}) {
    struct stat about {};
    if (::stat((run_dir / name).c_str(), &about) == 0 &&
        std::abs(::time(nullptr) - about.st_mtim.tv_sec) < kFreshSeconds)
      return true;
  }
  return false;
}

}  // namespace

std::string present_status(const nlohmann::json& run, const std::filesystem::path& run_dir) {
  const auto status = run.value("status", nlohmann::json("unknown"));
  if (!status.is_string()) return "unknown";
  if (status != "running") return status;
  const bool recorded = run.contains("process") && run["process"].is_object();
  const RecordedProcess process = recorded ? recorded_process(run["process"]) : RecordedProcess{};
  if (process.boot == boot_id() && (process.pid_space.empty() || process.pid_space == pid_space())) {
    const uint64_t start = process_start(process.pid);
    return start == 0 || start != process.start ? "died" : "running";
  }
  switch (run_lock_state(run_dir)) {
    case RunLockState::kHeld:
      return "running";
    case RunLockState::kFree:
      return "died";
    case RunLockState::kUnknown:
      break;
  }
  if (process.host == host_name() && process.boot != boot_id()) return "died";  // before this machine was started
  return is_written_to(run_dir) ? "running" : "died";
}

std::string process_words(const nlohmann::json& run) {
  if (!run.contains("process") || !run["process"].is_object()) return "its process";
  const RecordedProcess process = recorded_process(run["process"]);
  return fmt::format("process {} on {}", process.pid, printable(process.host));
}

}  // namespace tandem
