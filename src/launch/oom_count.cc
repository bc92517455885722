#include "launch/oom_count.h"

#include <fstream>
#include <string>

namespace tandem {
namespace {

std::optional<uint64_t> count_in(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string name;
  uint64_t value = 0;
  while (file >> name >> value) {
    if (name == key) return value;
  }
  return std::nullopt;
}

}  // namespace

std::optional<uint64_t> kernel_oom_kills() {
  // The machine's count covers every cgroup; a container that hides it still shows its own cgroup's.
  if (const auto machine = count_in("/proc/vmstat", "oom_kill")) return machine;
  return count_in("/sys/fs/cgroup/memory.events", "oom_kill");
}

}  // namespace tandem
