// hardware/machine.h -- the machine around the GPUs: CPUs, memory, limits, disk, where it runs.
//
// Read from /proc and /sys. What could not be read is absent.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

struct CpuFacts {
  std::optional<std::string> model;
  int logical = 0;              // CPUs of the machine
  int usable = 0;               // that this process may run on
  std::optional<double> quota;  // CPUs' worth of time that its cgroup allows
  std::optional<int> cores, sockets, numa_nodes;
};

struct MemoryFacts {
  std::optional<uint64_t> total_bytes, available_bytes;
  std::optional<uint64_t> cgroup_limit_bytes, cgroup_used_bytes;  // absent where there is no limit
  std::optional<uint64_t> cgroup_cache_bytes;  // of the used ones: pages of files, which the kernel gives up when asked
  std::optional<uint64_t> swap_total_bytes;
};

// A limit of this process; absent is unlimited.
struct ProcessLimits {
  std::optional<uint64_t> locked_memory_bytes, open_files, processes, file_size_bytes, core_bytes;
};

struct DiskFacts {
  uint64_t total_bytes = 0, free_bytes = 0;  // free: for this user
  std::string type;                          // "ext4", "tmpfs", "nfs"; empty if not known
};

struct MachineFacts {
  std::string hostname, kernel, architecture;
  std::optional<std::string> system;     // "Debian GNU/Linux 12 (bookworm)"
  std::optional<std::string> container;  // "docker", "podman", "kubernetes", "lxc", "wsl" ...; absent: none was noticed
  CpuFacts cpu;
  MemoryFacts memory;
  ProcessLimits limits;
  std::optional<DiskFacts> shared_memory;  // /dev/shm
};

MachineFacts machine_facts();
MemoryFacts memory_facts();  // alone, for those who watch it
// Of the nearest folder above that exists.
std::optional<DiskFacts> disk_facts(const std::filesystem::path& path);

// What this process may use: the least of free memory, and of what its cgroup leaves.
std::optional<uint64_t> usable_memory_bytes(const MemoryFacts& memory);

// For tests: the same from another root than "/".
MachineFacts machine_facts_below(const std::filesystem::path& root);

}  // namespace tandem
