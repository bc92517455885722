// hardware/gpu.h -- what is known of a GPU: what it is (GpuFacts) and how it is now (GpuReading).
//
// A driver need not know everything. What it did not report is absent, never 0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct NvLinkPeer {
  std::string bus_id;      // of the other end
  std::optional<int> gpu;  // its index, where the other end is a GPU of this machine
  bool is_switch = false;  // NVSwitch: every GPU behind it is reached
  int links = 0;
};

struct MigInstance {
  std::string uuid;  // "MIG-...": what CUDA_VISIBLE_DEVICES takes
  std::string name;
  std::optional<uint64_t> memory_bytes;
};

struct GpuFacts {
  int index = 0;  // nvidia-smi's
  // Why nothing more is known of it ("GPU is lost"); empty where the driver answers.
  std::string trouble;
  std::optional<std::string> name, uuid, bus_id;  // "NVIDIA H200", "GPU-...", "00000000:65:00.0"
  std::optional<uint64_t> memory_bytes;
  std::optional<int> cuda_cores, sms;
  std::optional<int> cc_major, cc_minor;        // compute capability
  std::optional<double> bandwidth_bytes_per_s;  // from bus width and memory clock, two transfers a cycle
  std::optional<double> power_limit_w, power_default_w, power_min_w, power_max_w;
  std::optional<int> slowdown_c, shutdown_c;
  std::optional<int> fans;
  std::optional<int> fan_min_percent, fan_max_percent;
  std::optional<int> pcie_generation, pcie_width, pcie_generation_max, pcie_width_max;
  std::optional<int> numa_node;
  std::vector<NvLinkPeer> nvlink_peers;
  std::optional<double> nvlink_bytes_per_s;  // of one link, one way
  std::optional<bool> persistence_mode, ecc_mode;
  std::optional<bool> mig_on;
  std::vector<MigInstance> mig;
};

// Why a clock is below what it could be.
enum class Throttle : uint8_t {
  kIdle,
  kApplicationClocks,
  kPowerCap,
  kHwSlowdown,
  kSyncBoost,
  kThermalSw,
  kThermalHw,
  kPowerBrake,
  kDisplayClocks,
  kOther,
};
std::string_view throttle_name(Throttle reason);      // "power_cap", as in JSON and metrics
std::string_view throttle_in_words(Throttle reason);  // "the power limit"
bool throttle_is_thermal(Throttle reason);

struct GpuProcess {
  uint32_t pid = 0;  // the host's; inside a container it may be nobody's
  std::optional<uint64_t> memory_bytes;
  std::optional<std::string> name;
};

struct GpuReading {
  int index = 0;
  double time_s = 0;    // base/clock.h's monotonic_seconds()
  std::string trouble;  // why the driver would not answer; empty if it did
  bool lost = false;    // it has fallen off the bus
  std::optional<uint64_t> memory_used_bytes, memory_free_bytes;
  std::optional<int> utilisation_percent, memory_utilisation_percent;
  std::optional<double> power_w, power_limit_w;
  std::optional<double> energy_j;  // a counter since the driver was loaded
  std::optional<int> temperature_c;
  std::optional<int> sm_clock_mhz, memory_clock_mhz, sm_clock_max_mhz, memory_clock_max_mhz;
  std::optional<int> fan_percent;                          // the fastest of its fans
  std::optional<uint64_t> ecc_corrected, ecc_uncorrected;  // since the driver was loaded
  std::optional<double> pcie_rx_bytes_per_s, pcie_tx_bytes_per_s;
  std::optional<std::vector<Throttle>> throttle;
  std::optional<std::vector<GpuProcess>> processes;
};

}  // namespace tandem
