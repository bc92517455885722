#include "monitor/host_meter.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace tandem {
namespace {

// Files of /proc have no size and are small: one read.
std::string_view slurp(const char* path, char* buffer, size_t size) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const ssize_t got = ::read(fd, buffer, size - 1);
  ::close(fd);
  if (got <= 0) return {};
  buffer[got] = 0;
  return {buffer, static_cast<size_t>(got)};
}

std::optional<uint64_t> field_kb(std::string_view text, const char* name) {
  const size_t at = text.find(name);
  if (at == std::string_view::npos) return std::nullopt;
  return std::strtoull(text.data() + at + std::strlen(name), nullptr, 10) * 1024;
}

}  // namespace

HostReading HostMeter::read() {
  HostReading reading;
  if (name_.empty()) {
    char name[256] = {};
    if (::gethostname(name, sizeof name - 1) == 0) name_ = name;
  }
  reading.name = name_;
  cpu_set_t set;
  reading.cpus = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  if (::sched_getaffinity(0, sizeof set, &set) == 0) reading.cpus = CPU_COUNT(&set);  // not with more than 1024
  char buffer[4096];
  if (const auto text = slurp("/proc/stat", buffer, sizeof buffer); text.starts_with("cpu ")) {
    double values[8] = {};
    char* at = buffer + 4;
    for (double& value : values) value = std::strtod(at, &at);
    double total = 0;
    for (const double value : values) total += value;
    const double busy = total - values[3] - values[4];  // idle, and waiting for a disk
    if (total_ >= 0 && total > total_)
      reading.cpu_percent = std::clamp(100 * (busy - busy_) / (total - total_), 0.0, 100.0);  // idle may go back
    busy_ = busy;
    total_ = total;
  }
  if (const auto text = slurp("/proc/loadavg", buffer, sizeof buffer); !text.empty())
    reading.load = std::strtod(buffer, nullptr);
  if (const auto text = slurp("/proc/meminfo", buffer, sizeof buffer); !text.empty()) {
    reading.memory_total_bytes = field_kb(text, "MemTotal:");
    const auto available = field_kb(text, "MemAvailable:");
    if (reading.memory_total_bytes && available && *available <= *reading.memory_total_bytes)
      reading.memory_used_bytes = *reading.memory_total_bytes - *available;
  }
  return reading;
}

HostMeter::Process HostMeter::read_process(int64_t pid, double now) {
  Process process;
  char path[64], buffer[2048];
  std::snprintf(path, sizeof path, "/proc/%lld/stat", static_cast<long long>(pid));
  const auto text = slurp(path, buffer, sizeof buffer);
  const size_t bracket = text.rfind(')');  // a name may hold anything
  if (bracket == std::string_view::npos) return process;
  char* at = buffer + bracket + 1;
  double ticks = 0;
  long long pages = -1;
  for (int field = 3; field <= 24; ++field) {
    while (*at == ' ') ++at;
    if (field == 14 || field == 15) ticks += std::strtod(at, nullptr);
    if (field == 24) pages = std::strtoll(at, nullptr, 10);
    while (*at && *at != ' ') ++at;
  }
  if (pages >= 0) process.memory_bytes = static_cast<uint64_t>(pages) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto [entry, is_new] = processes_.try_emplace(pid);
  Before& before = entry->second;
  if (!is_new && now > before.at && ticks >= before.ticks)
    process.cpu_percent =
        100 * (ticks - before.ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK)) / (now - before.at);
  before = {ticks, now, true};
  return process;
}

void HostMeter::forget_unread() {
  std::erase_if(processes_, [](const auto& item) { return !item.second.fresh; });
  for (auto& [pid, before] : processes_) before.fresh = false;
}

}  // namespace tandem
