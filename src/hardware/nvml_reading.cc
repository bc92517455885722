// hardware/nvml_reading.cc -- how a GPU is now, what may be set on it, and its Xid events.
#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>

#include "base/clock.h"
#include "hardware/nvml_impl.h"

namespace tandem {

using Kind = NvmlStatus::Kind;

namespace {

std::vector<Throttle> throttle_reasons(unsigned long long bits) {
  static constexpr std::array<std::pair<unsigned long long, Throttle>, 9> kKnown{{
      {nvml::kReasonIdle, Throttle::kIdle},
      {nvml::kReasonApplicationClocks, Throttle::kApplicationClocks},
      {nvml::kReasonPowerCap, Throttle::kPowerCap},
      {nvml::kReasonHwSlowdown, Throttle::kHwSlowdown},
      {nvml::kReasonSyncBoost, Throttle::kSyncBoost},
      {nvml::kReasonThermalSw, Throttle::kThermalSw},
      {nvml::kReasonThermalHw, Throttle::kThermalHw},
      {nvml::kReasonPowerBrake, Throttle::kPowerBrake},
      {nvml::kReasonDisplayClocks, Throttle::kDisplayClocks},
  }};
  std::vector<Throttle> reasons;
  for (const auto& [bit, reason] : kKnown) {
    if (bits & bit) reasons.push_back(reason);
    bits &= ~bit;
  }
  if (bits) reasons.push_back(Throttle::kOther);
  return reasons;
}

std::optional<std::string> process_name(const Nvml::Impl& n, unsigned pid) {
  char name[256] = "";
  if (n.nvmlSystemGetProcessName && n.nvmlSystemGetProcessName(pid, name, sizeof name) == nvml::kSuccess && *name)
    return name;
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string line;
  if (std::getline(file, line) && !line.empty()) return line;
  return std::nullopt;
}

// Asks for the list until it fits: processes come and go between two calls.
template <class Info, class F>
std::optional<std::vector<GpuProcess>> process_list(const Nvml::Impl& n, F function, nvml::Device d) {
  std::vector<Info> list(16);
  for (int tries = 0; tries < 4; ++tries) {
    unsigned count = static_cast<unsigned>(list.size());
    const nvml::Ret code = function(d, &count, list.data());
    if (code == nvml::kInsufficientSize) {
      list.resize(count + 8);
      continue;
    }
    if (code != nvml::kSuccess) return std::nullopt;
    std::vector<GpuProcess> processes;
    for (unsigned i = 0; i < count; ++i) {
      GpuProcess& process = processes.emplace_back();
      process.pid = list[i].pid;
      if (list[i].used_memory != nvml::kNotAvailable) process.memory_bytes = list[i].used_memory;
      process.name = process_name(n, process.pid);
    }
    return processes;
  }
  return std::nullopt;
}

std::optional<std::vector<GpuProcess>> processes_on(const Nvml::Impl& n, nvml::Device d) {
  if (n.nvmlDeviceGetComputeRunningProcesses_v3)
    return process_list<nvml::ProcessInfo>(n, n.nvmlDeviceGetComputeRunningProcesses_v3, d);
  if (n.nvmlDeviceGetComputeRunningProcesses_v2)
    return process_list<nvml::ProcessInfo>(n, n.nvmlDeviceGetComputeRunningProcesses_v2, d);
  if (n.nvmlDeviceGetComputeRunningProcesses)
    return process_list<nvml::ProcessInfoV1>(n, n.nvmlDeviceGetComputeRunningProcesses, d);
  return std::nullopt;
}

std::optional<int> temperature(const Nvml::Impl& n, nvml::Device d) {
  if (const auto value = n.number(n.nvmlDeviceGetTemperature, d, 0u)) return value;
  nvml::Temperature asked{};
  asked.version = sizeof asked | 1u << 24;
  if (!n.nvmlDeviceGetTemperatureV || n.nvmlDeviceGetTemperatureV(d, &asked) != nvml::kSuccess) return std::nullopt;
  return asked.celsius;
}

// Fails where the GPU does not report a number: that is not the same as none.
NvmlStatus count_fans(const Nvml::Impl& n, nvml::Device d, int& fans) {
  if (!n.nvmlDeviceGetNumFans) return n.word(nvml::kFunctionNotFound);
  unsigned count = 0;
  NvmlStatus status = n.word(n.nvmlDeviceGetNumFans(d, &count));
  fans = static_cast<int>(count);
  return status;
}

}  // namespace

GpuReading Nvml::reading(int gpu, bool with_processes) const {
  const Impl& n = *impl_;
  GpuReading now;
  now.index = gpu;
  now.time_s = monotonic_seconds();
  nvml::Device d = nullptr;
  NvmlStatus status = n.device(gpu, d);
  nvml::Memory plain{};
  nvml::MemoryV2 exact{};
  exact.version = sizeof exact | 2u << 24;
  if (status.ok() && n.nvmlDeviceGetMemoryInfo_v2 && n.nvmlDeviceGetMemoryInfo_v2(d, &exact) == nvml::kSuccess) {
    now.memory_used_bytes = exact.used, now.memory_free_bytes = exact.free;
  } else if (status.ok() && n.nvmlDeviceGetMemoryInfo) {
    const nvml::Ret code = n.nvmlDeviceGetMemoryInfo(d, &plain);
    if (code == nvml::kSuccess) now.memory_used_bytes = plain.used, now.memory_free_bytes = plain.free;
    if (code != nvml::kSuccess) status = code == nvml::kGpuIsLost ? n.word(code) : n.silence(d);
  }
  if (!status.ok()) {
    now.trouble = status.words;
    now.lost = status.kind == Kind::kGpuLost;
    return now;
  }
  if (const auto used = n.ask<nvml::Utilization>(n.nvmlDeviceGetUtilizationRates, d)) {
    now.utilisation_percent = static_cast<int>(used->gpu);
    now.memory_utilisation_percent = static_cast<int>(used->memory);
  }
  now.power_w = n.thousandths(n.nvmlDeviceGetPowerUsage, d);
  now.power_limit_w = n.thousandths(n.nvmlDeviceGetPowerManagementLimit, d);
  if (const auto energy = n.ask<unsigned long long>(n.nvmlDeviceGetTotalEnergyConsumption, d))
    now.energy_j = static_cast<double>(*energy) / 1000.0;
  now.temperature_c = temperature(n, d);
  now.sm_clock_mhz = n.number(n.nvmlDeviceGetClockInfo, d, nvml::kClockSm);
  now.memory_clock_mhz = n.number(n.nvmlDeviceGetClockInfo, d, nvml::kClockMemory);
  now.sm_clock_max_mhz = n.number(n.nvmlDeviceGetMaxClockInfo, d, nvml::kClockSm);
  now.memory_clock_max_mhz = n.number(n.nvmlDeviceGetMaxClockInfo, d, nvml::kClockMemory);
  const auto fans = n.number(n.nvmlDeviceGetNumFans, d);
  for (int fan = 0; fan < fans.value_or(0); ++fan) {
    const auto speed = n.number(n.nvmlDeviceGetFanSpeed_v2, d, static_cast<unsigned>(fan));
    if (speed) now.fan_percent = std::max(now.fan_percent.value_or(0), *speed);
  }
  if (!now.fan_percent && fans.value_or(1) > 0) now.fan_percent = n.number(n.nvmlDeviceGetFanSpeed, d);
  const auto errors = n.nvmlDeviceGetTotalEccErrors;
  if (const auto e = n.ask<unsigned long long>(errors, d, nvml::kEccCorrected, nvml::kEccVolatile))
    now.ecc_corrected = *e;
  if (const auto e = n.ask<unsigned long long>(errors, d, nvml::kEccUncorrected, nvml::kEccVolatile))
    now.ecc_uncorrected = *e;
  const auto traffic = n.nvmlDeviceGetPcieThroughput;  // in KB/s
  if (const auto kb = n.ask<unsigned>(traffic, d, nvml::kPcieRx)) now.pcie_rx_bytes_per_s = *kb * 1024.0;
  if (const auto kb = n.ask<unsigned>(traffic, d, nvml::kPcieTx)) now.pcie_tx_bytes_per_s = *kb * 1024.0;
  auto reasons = n.ask<unsigned long long>(n.nvmlDeviceGetCurrentClocksEventReasons, d);
  if (!reasons) reasons = n.ask<unsigned long long>(n.nvmlDeviceGetCurrentClocksThrottleReasons, d);
  if (reasons) now.throttle = throttle_reasons(*reasons);
  if (with_processes) now.processes = processes_on(n, d);
  return now;
}

NvmlStatus Nvml::set_power_limit(int gpu, double watts) {
  const Impl& n = *impl_;
  nvml::Device d = nullptr;
  if (const NvmlStatus status = n.device(gpu, d); !status.ok()) return status;
  if (!n.nvmlDeviceSetPowerManagementLimit) return n.word(nvml::kFunctionNotFound);
  if (!std::isfinite(watts) || watts <= 0 || watts > 1e5) return {Kind::kInvalid, "that is no power limit"};
  return n.word(n.nvmlDeviceSetPowerManagementLimit(d, static_cast<unsigned>(std::lround(watts * 1000))));
}

NvmlStatus Nvml::restore_power_limit(int gpu) {
  const auto before = power_limit_at_open(gpu);
  if (!before) return {Kind::kNotSupported, "the power limit was not known when the driver was opened"};
  return set_power_limit(gpu, *before);
}

std::optional<double> Nvml::power_limit_at_open(int gpu) const {
  if (gpu < 0 || gpu >= count()) return std::nullopt;
  return impl_->limit_at_open[gpu];
}

NvmlStatus Nvml::set_fan(int gpu, int percent) {
  const Impl& n = *impl_;
  nvml::Device d = nullptr;
  if (const NvmlStatus status = n.device(gpu, d); !status.ok()) return status;
  if (!n.nvmlDeviceSetFanSpeed_v2) return n.word(nvml::kFunctionNotFound);
  if (percent < 0 || percent > 100) return {Kind::kInvalid, "a fan's speed is 0 to 100 percent"};
  int fans = 0;
  if (const NvmlStatus status = count_fans(n, d, fans); !status.ok()) return status;
  if (fans == 0) return {Kind::kNotSupported, "it has no fan of its own"};
  for (int fan = 0; fan < fans; ++fan) {
    const NvmlStatus status = n.word(n.nvmlDeviceSetFanSpeed_v2(d, fan, static_cast<unsigned>(percent)));
    if (!status.ok()) return status;
  }
  return {};
}

NvmlStatus Nvml::set_fan_auto(int gpu) {
  const Impl& n = *impl_;
  nvml::Device d = nullptr;
  if (const NvmlStatus status = n.device(gpu, d); !status.ok()) return status;
  if (!n.nvmlDeviceSetDefaultFanSpeed_v2) return n.word(nvml::kFunctionNotFound);
  NvmlStatus worst;
  int fans = 0;
  if (const NvmlStatus status = count_fans(n, d, fans); !status.ok()) return status;
  for (int fan = 0; fan < fans; ++fan) {
    const NvmlStatus status = n.word(n.nvmlDeviceSetDefaultFanSpeed_v2(d, fan));
    if (!status.ok()) worst = status;
  }
  return worst;
}

std::optional<int> Nvml::manual_fan_percent(int gpu) const {
  const Impl& n = *impl_;
  nvml::Device d = nullptr;
  if (!n.device(gpu, d).ok() || n.number(n.nvmlDeviceGetFanControlPolicy_v2, d, 0u) != 1) return std::nullopt;
  return n.number(n.nvmlDeviceGetFanSpeed_v2, d, 0u);
}

NvmlStatus Nvml::Impl::watch_events() {
  const std::lock_guard lock(events_mutex);
  if (events) return {};
  if (!status.ok()) return status;
  if (!nvmlEventSetCreate || !nvmlDeviceRegisterEvents || !nvmlEventSetWait_v2) return word(nvml::kFunctionNotFound);
  nvml::EventSet set = nullptr;
  if (const NvmlStatus made = word(nvmlEventSetCreate(&set)); !made.ok()) return made;
  NvmlStatus last = word(nvml::kNotSupported);
  int watched = 0;
  for (const nvml::Device d : devices) {
    if (!d) continue;
    const nvml::Ret code = nvmlDeviceRegisterEvents(d, nvml::kEventXid, set);
    if (code == nvml::kSuccess)
      ++watched;
    else
      last = word(code);
  }
  if (watched == 0) {
    if (nvmlEventSetFree) nvmlEventSetFree(set);
    return last;
  }
  events = set;
  return {};
}

NvmlResult<XidEvent> Nvml::next_xid(int timeout_ms) {
  Impl& n = *impl_;
  if (NvmlStatus status = n.watch_events(); !status.ok()) return {std::move(status), {}};
  nvml::EventData data{};
  NvmlStatus status = n.word(n.nvmlEventSetWait_v2(n.events, &data, static_cast<unsigned>(std::max(0, timeout_ms))));
  if (!status.ok()) return {std::move(status), {}};
  XidEvent event;
  for (size_t i = 0; i < n.devices.size(); ++i) {
    if (n.devices[i] == data.device) event.gpu = static_cast<int>(i);
  }
  event.xid = data.data;
  if (data.gpu_instance != ~0u) event.gpu_instance = data.gpu_instance;
  return {{}, event};
}

}  // namespace tandem
