#include "explain/crowd.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/cores.h"

namespace tandem {
namespace {

constexpr double kCrowdedShare = 0.1;  // of the workers' time, waiting for a core
constexpr double kFirstSeconds = 1, kLookSeconds = 5;
constexpr size_t kMostNamed = 3;
constexpr double kCoresWorthNaming = 0.1;  // cores

struct Process {
  int64_t parent = 0;
  std::string name;
  double seconds = 0;
};

double tick_seconds() { return 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK)); }

std::optional<Process> read_process(const std::filesystem::path& dir) {
  std::ifstream file(dir / "stat");
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  const size_t open = text.find('('), close = text.rfind(')');  // a name may hold anything
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  Process process{.name = text.substr(open + 1, close - open - 1)};
  const char* at = text.c_str() + close + 1;
  for (int field = 3; field <= 15 && *at; ++field) {
    while (*at == ' ') ++at;
    if (field == 4) process.parent = std::atoll(at);
    if (field >= 14) process.seconds += std::atof(at) * tick_seconds();
    while (*at && *at != ' ') ++at;
  }
  return process;
}

std::map<int64_t, Process> all_processes() {
  std::map<int64_t, Process> all;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    int64_t pid = 0;
    const auto [rest, failed] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (failed != std::errc() || rest != name.data() + name.size()) continue;
    if (auto process = read_process(it->path())) all.emplace(pid, std::move(*process));
  }
  return all;
}

// Runs of one set are siblings: all that the outermost `tandem` above this process has started is ours.
int64_t outermost(const std::map<int64_t, Process>& all) {
  int64_t root = getpid(), pid = root;
  for (int steps = 0; pid > 1 && steps < 64; ++steps) {
    const auto found = all.find(pid);
    if (found == all.end()) break;
    if (found->second.name == "tandem") root = pid;
    pid = found->second.parent;
  }
  return root;
}

bool is_own(const std::map<int64_t, Process>& all, int64_t root, int64_t pid) {
  for (int steps = 0; pid > 1 && steps < 64; ++steps) {
    if (pid == root) return true;
    const auto found = all.find(pid);
    if (found == all.end()) return false;
    pid = found->second.parent;
  }
  return false;
}

}  // namespace

std::optional<double> idle_core_seconds() {
  cpu_set_t set;
  const bool known = sched_getaffinity(0, sizeof set, &set) == 0;
  std::ifstream file("/proc/stat");
  double ticks = 0;
  bool any = false;
  for (std::string line; std::getline(file, line) && line.starts_with("cpu");) {
    int core = -1;
    double idle = 0, waiting = 0;
    if (line.size() < 4 || !std::isdigit(static_cast<unsigned char>(line[3]))) continue;  // the sum
    if (std::sscanf(line.c_str(), "cpu%d %*f %*f %*f %lf %lf", &core, &idle, &waiting) != 3) continue;
    if (known && (core < 0 || core >= CPU_SETSIZE || !CPU_ISSET(core, &set))) continue;
    ticks += idle + waiting;
    any = true;
  }
  return any ? std::optional(ticks * tick_seconds()) : std::nullopt;
}

std::vector<OtherProgram> OtherPrograms::look(double now) {
  const auto all = all_processes();
  const int64_t root = outermost(all);
  std::vector<OtherProgram> found;
  std::map<int64_t, double> seconds;
  for (const auto& [pid, process] : all) {
    seconds[pid] = process.seconds;
    const auto before = seconds_.find(pid);
    if (at_ <= 0 || now <= at_ || is_own(all, root, pid)) continue;
    const double cores = (process.seconds - (before == seconds_.end() ? 0 : before->second)) / (now - at_);
    if (cores >= kCoresWorthNaming) found.push_back({pid, process.name, cores});
  }
  seconds_ = std::move(seconds);
  at_ = now;
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.cores > b.cores; });
  if (found.size() > kMostNamed) found.resize(kMostNamed);
  return found;
}

void CrowdWatch::add_to(TimesLine& line, double now) {
  line.cores = usable_cores();
  line.idle = idle_core_seconds();
  double delay = 0;
  for (const RankRow& row : line.ranks) delay += row.times.delay;
  const double share = (delay - delay_) / std::max(1e-9, (now - at_) * static_cast<double>(line.ranks.size()));
  const bool crowded = at_ > 0 && !line.ranks.empty() && share >= kCrowdedShare;
  at_ = now;
  delay_ = delay;
  if (!crowded) {
    looked_ = false;
    seen_.clear();
    return;
  }
  if (!looked_ || now >= next_look_) {
    seen_ = programs_.look(now);
    if (!looked_) seen_.clear();  // since long before
    next_look_ = now + (looked_ ? kLookSeconds : kFirstSeconds);
    looked_ = true;
  }
  line.others = seen_;
}

}  // namespace tandem
