#include "engine/usage.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/gpu_device.h"
#include "fleet/worker_page.h"

namespace tandem {
namespace {

double seconds(const std::atomic<uint64_t>& ns) {
  return static_cast<double>(ns.load(std::memory_order_relaxed)) * 1e-9;
}

}  // namespace

// Not getrusage(): its maximum knows the process that this one was before exec.
HostMemory host_memory() {
  HostMemory memory;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    unsigned long long kib = 0;
    if (std::sscanf(line.c_str(), "VmHWM: %llu", &kib) == 1) memory.peak_bytes = kib << 10;
    if (std::sscanf(line.c_str(), "VmRSS: %llu", &kib) == 1) memory.now_bytes = kib << 10;
  }
  return memory;
}

nlohmann::json usage_of(const WorkerPage& page, const std::map<unsigned, uint64_t>& filled) {
  HostMemory host = host_memory();
  for (const auto& [buffer, bytes] : filled) host.peak_bytes += bytes;
  nlohmann::json usage = {{"memory_bytes", host.peak_bytes},
                          {"memory_now", host.now_bytes},
                          {"steps", page.steps_run.load(std::memory_order_relaxed)},
                          {"step_s", seconds(page.step_ns)},
                          {"compute_s", seconds(page.compute_ns)},
                          {"combine_s", seconds(page.combine_ns)},
                          {"load_s", seconds(page.load_ns)},
                          {"snapshot_s", seconds(page.snapshot_ns)}};
  if (const GpuDevice* const driven = gpu()) {
    const GpuMemory memory = driven->memory();
    usage["card_bytes"] = memory.peak_bytes;
    usage["card_now"] = memory.now_bytes;
  }
  return usage;
}

}  // namespace tandem
