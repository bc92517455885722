#include "telemetry/gpu_json.h"

namespace tandem {
namespace {

template <class T>
void put(nlohmann::json& object, const char* key, const std::optional<T>& value) {
  if (value) object[key] = *value;
}

}  // namespace

nlohmann::json to_json(const GpuFacts& facts) {
  nlohmann::json out{{"index", facts.index}};
  if (!facts.trouble.empty()) out["trouble"] = facts.trouble;
  put(out, "name", facts.name);
  put(out, "uuid", facts.uuid);
  put(out, "bus_id", facts.bus_id);
  put(out, "memory_bytes", facts.memory_bytes);
  put(out, "cuda_cores", facts.cuda_cores);
  put(out, "sms", facts.sms);
  if (facts.cc_major && facts.cc_minor)
    out["compute_capability"] = std::to_string(*facts.cc_major) + "." + std::to_string(*facts.cc_minor);
  put(out, "bandwidth_bytes_per_s", facts.bandwidth_bytes_per_s);
  put(out, "power_limit_w", facts.power_limit_w);
  put(out, "power_default_w", facts.power_default_w);
  put(out, "power_min_w", facts.power_min_w);
  put(out, "power_max_w", facts.power_max_w);
  put(out, "slowdown_c", facts.slowdown_c);
  put(out, "shutdown_c", facts.shutdown_c);
  put(out, "fans", facts.fans);
  put(out, "pcie_generation", facts.pcie_generation);
  put(out, "pcie_width", facts.pcie_width);
  put(out, "pcie_generation_max", facts.pcie_generation_max);
  put(out, "pcie_width_max", facts.pcie_width_max);
  put(out, "numa_node", facts.numa_node);
  put(out, "persistence_mode", facts.persistence_mode);
  put(out, "ecc_mode", facts.ecc_mode);
  out["nvlink_peers"] = nlohmann::json::array();
  for (const NvLinkPeer& peer : facts.nvlink_peers) {
    nlohmann::json one{{"bus_id", peer.bus_id}, {"links", peer.links}, {"switch", peer.is_switch}};
    put(one, "gpu", peer.gpu);
    out["nvlink_peers"].push_back(one);
  }
  put(out, "nvlink_bytes_per_s", facts.nvlink_bytes_per_s);
  put(out, "mig_on", facts.mig_on);
  if (facts.mig_on.value_or(false)) {
    out["mig"] = nlohmann::json::array();
    for (const MigInstance& part : facts.mig) {
      nlohmann::json one{{"uuid", part.uuid}, {"name", part.name}};
      put(one, "memory_bytes", part.memory_bytes);
      out["mig"].push_back(one);
    }
  }
  return out;
}

nlohmann::json to_json(const GpuReading& reading) {
  nlohmann::json out{{"index", reading.index}};
  if (!reading.trouble.empty()) out["trouble"] = reading.trouble;
  if (reading.lost) out["lost"] = true;
  put(out, "memory_used_bytes", reading.memory_used_bytes);
  put(out, "memory_free_bytes", reading.memory_free_bytes);
  put(out, "utilisation_percent", reading.utilisation_percent);
  put(out, "memory_utilisation_percent", reading.memory_utilisation_percent);
  put(out, "power_w", reading.power_w);
  put(out, "power_limit_w", reading.power_limit_w);
  put(out, "energy_j", reading.energy_j);
  put(out, "temperature_c", reading.temperature_c);
  put(out, "sm_clock_mhz", reading.sm_clock_mhz);
  put(out, "memory_clock_mhz", reading.memory_clock_mhz);
  put(out, "sm_clock_max_mhz", reading.sm_clock_max_mhz);
  put(out, "memory_clock_max_mhz", reading.memory_clock_max_mhz);
  put(out, "fan_percent", reading.fan_percent);
  put(out, "ecc_corrected", reading.ecc_corrected);
  put(out, "ecc_uncorrected", reading.ecc_uncorrected);
  put(out, "pcie_rx_bytes_per_s", reading.pcie_rx_bytes_per_s);
  put(out, "pcie_tx_bytes_per_s", reading.pcie_tx_bytes_per_s);
  if (reading.throttle) {
    out["throttle"] = nlohmann::json::array();
    for (const Throttle reason : *reading.throttle) out["throttle"].push_back(throttle_name(reason));
  }
  if (reading.processes) {
    out["processes"] = nlohmann::json::array();
    for (const GpuProcess& process : *reading.processes) {
      nlohmann::json one{{"pid", process.pid}};
      put(one, "memory_bytes", process.memory_bytes);
      put(one, "name", process.name);
      out["processes"].push_back(one);
    }
  }
  return out;
}

}  // namespace tandem
