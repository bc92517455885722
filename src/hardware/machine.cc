#include "hardware/machine.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

namespace tandem {
namespace fs = std::filesystem;
namespace {

std::optional<std::string> first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::string without_spaces(std::string text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\n'; };
  while (!text.empty() && blank(text.back())) text.pop_back();
  size_t start = 0;
  while (start < text.size() && blank(text[start])) ++start;
  return text.substr(start);
}

std::optional<uint64_t> number(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

// The cgroup of this process as a folder; version 2, or the memory controller of version 1.
struct Cgroup {
  fs::path v2, v1_memory, v1_cpu;
};

Cgroup own_cgroup(const fs::path& root) {
  Cgroup group;
  std::ifstream file(root / "proc/self/cgroup");
  std::string line;
  const fs::path top = root / "sys/fs/cgroup";
  while (std::getline(file, line)) {
    const size_t one = line.find(':'), two = line.find(':', one + 1);
    if (one == std::string::npos || two == std::string::npos) continue;
    const std::string controllers = line.substr(one + 1, two - one - 1), path = line.substr(two + 1);
    if (controllers.empty()) group.v2 = top / fs::path(path).relative_path();
    if (controllers == "memory") group.v1_memory = top / "memory" / fs::path(path).relative_path();
    if (controllers.find("cpu") != std::string::npos && controllers.find("cpuset") == std::string::npos)
      group.v1_cpu = top / controllers / fs::path(path).relative_path();
  }
  return group;
}

// Limits hold for a whole subtree, so the least on the way up counts. A container sees its own root as "/".
template <class Read>
auto least_on_the_way_up(fs::path folder, const fs::path& top, Read read) {
  decltype(read(folder)) least;
  while (true) {
    if (const auto value = read(folder); value && (!least || *value < *least)) least = value;
    if (folder == top || folder.empty() || !folder.has_relative_path() || folder == folder.parent_path()) break;
    folder = folder.parent_path();
  }
  return least;
}

std::optional<uint64_t> file_cache_of(const fs::path& stat) {
  std::optional<uint64_t> bytes;
  std::ifstream file(stat);
  std::string key;
  for (uint64_t value = 0; file >> key >> value;)
    if (key == "inactive_file" || key == "active_file") bytes = bytes.value_or(0) + value;
  return bytes;
}

MemoryFacts memory_below(const fs::path& root) {
  MemoryFacts memory;
  std::ifstream file(root / "proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string key;
    uint64_t kib = 0;
    if (!(words >> key >> kib)) continue;
    if (key == "MemTotal:") memory.total_bytes = kib * 1024;
    if (key == "MemAvailable:") memory.available_bytes = kib * 1024;
    if (key == "SwapTotal:") memory.swap_total_bytes = kib * 1024;
  }
  const Cgroup group = own_cgroup(root);
  const fs::path top = root / "sys/fs/cgroup";
  const auto limit_of = [](const fs::path& folder, const char* name) {
    auto value = number(first_line(folder / name));      // "max" is no number
    if (value && *value >= (1ull << 62)) value.reset();  // version 1 writes no limit so
    return value;
  };
  if (!group.v2.empty())
    memory.cgroup_limit_bytes =
        least_on_the_way_up(group.v2, top, [&](const fs::path& f) { return limit_of(f, "memory.max"); });
  if (!memory.cgroup_limit_bytes && !group.v1_memory.empty())
    memory.cgroup_limit_bytes = least_on_the_way_up(
        group.v1_memory, top, [&](const fs::path& f) { return limit_of(f, "memory.limit_in_bytes"); });
  if (memory.cgroup_limit_bytes) {
    memory.cgroup_used_bytes = number(first_line(group.v2 / "memory.current"));
    if (!memory.cgroup_used_bytes) memory.cgroup_used_bytes = number(first_line(top / "memory.current"));
    if (!memory.cgroup_used_bytes)
      memory.cgroup_used_bytes = number(first_line(group.v1_memory / "memory.usage_in_bytes"));
    for (const fs::path& folder : {group.v2, top, group.v1_memory})
      if (!memory.cgroup_cache_bytes) memory.cgroup_cache_bytes = file_cache_of(folder / "memory.stat");
  }
  return memory;
}

// Cores of servers that GPUs are put into, by the numbers that they give; others by these numbers alone.
std::string arm_core(const std::string& implementer, const std::string& part) {
  static constexpr std::pair<const char*, const char*> kArm[] = {{"0xd0c", "Neoverse N1"}, {"0xd49", "Neoverse N2"},
                                                                 {"0xd40", "Neoverse V1"}, {"0xd4f", "Neoverse V2"},
                                                                 {"0xd8e", "Neoverse N3"}, {"0xd84", "Neoverse V3"}};
  for (const auto& [number, name] : kArm)
    if (implementer == "0x41" && part == number) return std::string("Arm ") + name;
  return "Arm implementer " + implementer + ", part " + part;
}

CpuFacts cpu_below(const fs::path& root) {
  CpuFacts cpu;
  std::ifstream file(root / "proc/cpuinfo");
  std::string line;
  std::set<std::pair<std::string, std::string>> cores;
  std::set<std::string> sockets;
  std::string socket, implementer, part;
  while (std::getline(file, line)) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string key = without_spaces(line.substr(0, colon)), value = without_spaces(line.substr(colon + 1));
    if (key == "processor") ++cpu.logical;
    if ((key == "model name" || key == "Model") && !cpu.model) cpu.model = value;
    if (key == "CPU implementer") implementer = value;
    if (key == "CPU part") part = value;
    if (key == "physical id") sockets.insert(socket = value);
    if (key == "core id") cores.insert({socket, value});
  }
  if (!cpu.model && !part.empty()) cpu.model = arm_core(implementer, part);  // aarch64 has no model name there
  if (!cpu.model) {
    const auto device = first_line(root / "sys/firmware/devicetree/base/model");
    if (device) cpu.model = device->substr(0, device->find('\0'));
  }
  if (!cores.empty()) cpu.cores = static_cast<int>(cores.size());
  if (!sockets.empty()) cpu.sockets = static_cast<int>(sockets.size());
  int nodes = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root / "sys/devices/system/node", error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("node") && name.size() > 4 && name[4] >= '0' && name[4] <= '9') ++nodes;
  }
  if (nodes > 0) cpu.numa_nodes = nodes;
  cpu_set_t set;
  CPU_ZERO(&set);
  cpu.usable = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : cpu.logical;
  const Cgroup group = own_cgroup(root);
  const fs::path top = root / "sys/fs/cgroup";
  cpu.quota = least_on_the_way_up(group.v2, top, [](const fs::path& folder) -> std::optional<double> {
    const auto text = first_line(folder / "cpu.max");
    if (!text) return std::nullopt;
    std::istringstream words(*text);
    double quota = 0, period = 0;
    if (!(words >> quota >> period) || period <= 0) return std::nullopt;  // "max 100000"
    return quota / period;
  });
  if (!cpu.quota && !group.v1_cpu.empty()) {
    cpu.quota = least_on_the_way_up(group.v1_cpu, top, [](const fs::path& folder) -> std::optional<double> {
      const auto quota = number(first_line(folder / "cpu.cfs_quota_us")),
                 period = number(first_line(folder / "cpu.cfs_period_us"));
      if (!quota || !period || *period == 0) return std::nullopt;
      return static_cast<double>(*quota) / static_cast<double>(*period);
    });
  }
  return cpu;
}

std::optional<std::string> container_below(const fs::path& root) {
  std::error_code error;
  if (std::getenv("KUBERNETES_SERVICE_HOST")) return "kubernetes";
  if (fs::exists(root / ".dockerenv", error)) return "docker";
  if (fs::exists(root / "run/.containerenv", error)) return "podman";
  if (std::getenv("APPTAINER_CONTAINER") || std::getenv("SINGULARITY_CONTAINER")) return "apptainer";
  if (const auto version = first_line(root / "proc/version"); version && version->find("icrosoft") != std::string::npos)
    return "wsl";
  std::ifstream file(root / "proc/1/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    for (const char* word : {"docker", "kubepods", "libpod", "lxc", "containerd"}) {
      if (line.find(word) != std::string::npos) return word == std::string("kubepods") ? "kubernetes" : word;
    }
  }
  if (const char* name = std::getenv("container"); name && *name) return name;
  return std::nullopt;
}

std::optional<uint64_t> limit(int what) {
  struct rlimit value {};
  if (getrlimit(static_cast<__rlimit_resource>(what), &value) != 0 || value.rlim_cur == RLIM_INFINITY)
    return std::nullopt;
  return value.rlim_cur;
}

// The type of the file system that holds a path: the longest mount point that is a prefix of it.
std::string file_system_type(const fs::path& path) {
  std::ifstream file("/proc/self/mounts");
  std::string device, point, type, rest, best_type;
  size_t best = 0;
  while (file >> device >> point >> type && std::getline(file, rest)) {
    const std::string text = path.string();
    const bool holds = text == point || point == "/" || (text.starts_with(point) && text[point.size()] == '/');
    if (holds && point.size() >= best) best = point.size(), best_type = type;
  }
  return best_type;
}

}  // namespace

MemoryFacts memory_facts() { return memory_below("/"); }

std::optional<uint64_t> usable_memory_bytes(const MemoryFacts& memory) {
  std::optional<uint64_t> least = memory.available_bytes;
  if (memory.cgroup_limit_bytes) {
    const uint64_t taken = memory.cgroup_used_bytes.value_or(0);
    const uint64_t used = taken - std::min(taken, memory.cgroup_cache_bytes.value_or(0));
    const uint64_t left = *memory.cgroup_limit_bytes > used ? *memory.cgroup_limit_bytes - used : 0;
    if (!least || left < *least) least = left;
  }
  return least;
}

std::optional<DiskFacts> disk_facts(const fs::path& path) {
  std::error_code error;
  fs::path folder = fs::absolute(path, error);
  while (!folder.empty() && !fs::exists(folder, error) && folder != folder.parent_path()) folder = folder.parent_path();
  struct statvfs info {};
  if (statvfs(folder.c_str(), &info) != 0) return std::nullopt;
  const uint64_t block = info.f_frsize;
  fs::path real = fs::canonical(folder, error);
  return DiskFacts{block * info.f_blocks, block * info.f_bavail, file_system_type(error ? folder : real)};
}

MachineFacts machine_facts_below(const fs::path& root) {
  MachineFacts facts;
  struct utsname names {};
  if (uname(&names) == 0)
    facts.hostname = names.nodename, facts.kernel = names.release, facts.architecture = names.machine;
  std::ifstream release(root / "etc/os-release");
  std::string line;
  while (std::getline(release, line)) {
    if (!line.starts_with("PRETTY_NAME=")) continue;
    std::string name = line.substr(12);
    std::erase(name, '"');
    facts.system = name;
  }
  facts.container = container_below(root);
  facts.cpu = cpu_below(root);
  facts.memory = memory_below(root);
  facts.limits = {limit(RLIMIT_MEMLOCK), limit(RLIMIT_NOFILE), limit(RLIMIT_NPROC), limit(RLIMIT_FSIZE),
                  limit(RLIMIT_CORE)};
  std::error_code error;
  if (fs::exists(root / "dev/shm", error)) facts.shared_memory = disk_facts(root / "dev/shm");
  return facts;
}

MachineFacts machine_facts() { return machine_facts_below("/"); }

}  // namespace tandem
