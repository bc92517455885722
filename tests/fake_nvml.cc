// tests/fake_nvml.cc -- libfake_nvml.so: NVML's symbols over a machine simulated from a script (tests/fake_machine.h).
//
// Loaded through TANDEM_NVML, or by anybody who opens NVML by name (PyPI's pynvml does in a test). Compiled a second
// time with FAKE_NVML_OLD as libfake_nvml_old.so, which lacks what drivers of about 2018 lacked.
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <list>

#include "fake_machine.h"
#include "hardware/nvml_api.h"

using namespace tandem::nvml;

namespace {

struct Handle {
  int gpu = 0;
  const fake::Mig* part = nullptr;
};

struct Events {
  std::set<int> gpus;
  double since = 0;
  std::set<const fake::Event*> delivered;
};

Handle* handle_of(int gpu, const fake::Mig* part = nullptr) {
  static std::mutex mutex;
  static std::list<Handle> handles;
  const std::lock_guard lock(mutex);
  for (Handle& handle : handles) {
    if (handle.gpu == gpu && handle.part == part) return &handle;
  }
  return &handles.emplace_back(Handle{gpu, part});
}

std::atomic<int> g_open = 0;  // how many times it was opened; the last one to close ends it

// Where every call on a device begins: is NVML open, is the GPU still there, does the script refuse this?
struct Call {
  Call(const char* function, Device device, bool whole_gpu = true) {
    m = fake::machine();
    if (!m || !g_open) {
      code = kUninitialized;
      return;
    }
    handle = static_cast<Handle*>(device);
    if (!handle) {
      code = kInvalidArgument;
      return;
    }
    gpu = handle->gpu;
    fake = &m->fakes[gpu];
    t = m->now();
    if (m->lost(gpu, t)) {
      code = kGpuIsLost;
      return;
    }
    if (const auto refused = m->refusal(function, gpu)) {
      code = *refused;
      return;
    }
    if (whole_gpu && handle->part) code = kNotSupported;
  }
  fake::Machine* m = nullptr;
  Handle* handle = nullptr;
  fake::FakeGpu* fake = nullptr;
  int gpu = 0;
  double t = 0;
  Ret code = kSuccess;
};

#define BEGIN(device)       \
  Call c(__func__, device); \
  if (c.code != kSuccess) return c.code

Ret put(const std::string& text, char* buffer, unsigned length) {
  if (text.size() + 1 > length) return kInsufficientSize;
  std::memcpy(buffer, text.c_str(), text.size() + 1);
  return kSuccess;
}

void put_bus_id(const std::string& id, PciInfo* pci) {
  std::memset(pci, 0, sizeof *pci);
  std::strncpy(pci->bus_id, id.c_str(), kBusId - 1);
  std::strncpy(pci->bus_id_legacy, id.substr(4).c_str(), kBusIdLegacy - 1);
  pci->bus = static_cast<unsigned>(std::stoul(id.substr(9, 2), nullptr, 16));
}

unsigned milliwatts(double watts) { return static_cast<unsigned>(std::lround(watts * 1000)); }

// The GPU at the other end of a link without switches: GPUs come in pairs, as bridges join them.
int partner(const fake::Machine& m, int gpu) {
  const int other = m.fakes[gpu].nvlink_to >= 0 ? m.fakes[gpu].nvlink_to : gpu ^ 1;
  return other < static_cast<int>(m.fakes.size()) ? other : -1;
}

}  // namespace

extern "C" {

const char* nvmlErrorString(Ret code) {
  switch (code) {
    case kSuccess:
      return "Success";
    case kUninitialized:
      return "Uninitialized";
    case kInvalidArgument:
      return "Invalid Argument";
    case kNotSupported:
      return "Not Supported";
    case kNoPermission:
      return "Insufficient Permissions";
    case kNotFound:
      return "Not Found";
    case kInsufficientSize:
      return "Insufficient Size";
    case kDriverNotLoaded:
      return "Driver Not Loaded";
    case kTimeout:
      return "Timeout";
    case kLibraryNotFound:
      return "NVML Shared Library Not Found";
    case kFunctionNotFound:
      return "Function Not Found";
    case kGpuIsLost:
      return "GPU is lost";
    case kLibRmVersionMismatch:
      return "Driver/library version mismatch";
    default:
      return "Unknown Error";
  }
}

Ret nvmlInit_v2() {
  fake::Machine* m = fake::machine();
  if (!m) return kDriverNotLoaded;
  if (m->init_code == kSuccess) ++g_open;
  return m->init_code;
}
Ret nvmlInitWithFlags(unsigned) { return nvmlInit_v2(); }
Ret nvmlShutdown() {
  if (!g_open) return kUninitialized;
  --g_open;
  return kSuccess;
}
Ret nvmlSystemGetDriverVersion(char* text, unsigned length) {
  return g_open ? put(fake::machine()->driver_version, text, length) : kUninitialized;
}
Ret nvmlSystemGetNVMLVersion(char* text, unsigned length) {
  return g_open ? put(fake::machine()->nvml_version, text, length) : kUninitialized;
}
Ret nvmlSystemGetCudaDriverVersion_v2(int* version) {
  if (!g_open) return kUninitialized;
  *version = fake::machine()->cuda_version;
  return kSuccess;
}
Ret nvmlSystemGetProcessName(unsigned pid, char* name, unsigned length) {
  if (!g_open) return kUninitialized;
  for (const fake::FakeGpu& one : fake::machine()->fakes) {
    for (const fake::Process& process : one.processes) {
      if (process.pid == pid && !process.name.empty()) return put(process.name, name, length);
    }
  }
  return kNotFound;
}
Ret nvmlDeviceGetCount_v2(unsigned* count) {
  if (!g_open) return kUninitialized;
  *count = static_cast<unsigned>(fake::machine()->fakes.size());
  return kSuccess;
}
Ret nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  fake::Machine* m = fake::machine();
  if (!g_open) return kUninitialized;
  if (index >= m->fakes.size()) return kInvalidArgument;
  if (m->lost(static_cast<int>(index), m->now())) return kGpuIsLost;
  *device = handle_of(static_cast<int>(index));
  return kSuccess;
}
Ret nvmlDeviceGetName(Device device, char* name, unsigned length) {
  Call c(__func__, device, false);
  if (c.code != kSuccess) return c.code;
  return put(c.handle->part ? c.handle->part->name : c.fake->name, name, length);
}
Ret nvmlDeviceGetUUID(Device device, char* uuid, unsigned length) {
  Call c(__func__, device, false);
  if (c.code != kSuccess) return c.code;
  return put(c.handle->part ? c.handle->part->uuid : c.fake->uuid, uuid, length);
}
Ret nvmlDeviceGetPciInfo_v3(Device device, PciInfo* pci) {
  BEGIN(device);
  put_bus_id(c.fake->bus_id, pci);
  return kSuccess;
}
Ret nvmlDeviceGetMemoryInfo(Device device, Memory* memory) {
  Call c(__func__, device, false);
  if (c.code != kSuccess) return c.code;
  const uint64_t total = c.handle->part ? c.handle->part->memory_bytes : c.fake->memory_bytes;
  const uint64_t used = c.handle->part
                            ? 0
                            : static_cast<uint64_t>(c.m->value(c.gpu, c.t, "used_gb",
                                                               static_cast<double>(c.fake->used_bytes) / (1ull << 30)) *
                                                    (1ull << 30));
  *memory = {total, total - used, used};
  return kSuccess;
}
Ret nvmlDeviceGetTemperature(Device device, unsigned, unsigned* celsius) {
  BEGIN(device);
  *celsius = static_cast<unsigned>(std::lround(c.m->celsius(c.gpu, c.t)));
  return kSuccess;
}
Ret nvmlDeviceGetTemperatureThreshold(Device device, unsigned type, unsigned* celsius) {
  BEGIN(device);
  if (type > kThresholdSlowdown) return kNotSupported;
  *celsius = static_cast<unsigned>(type == kThresholdShutdown ? c.fake->shutdown_c : c.fake->slowdown_c);
  return kSuccess;
}
Ret nvmlDeviceGetCudaComputeCapability(Device device, int* major, int* minor) {
  BEGIN(device);
  *major = c.fake->cc_major, *minor = c.fake->cc_minor;
  return kSuccess;
}
Ret nvmlDeviceGetMaxClockInfo(Device device, unsigned type, unsigned* mhz) {
  BEGIN(device);
  if (type > kClockMemory) return kNotSupported;
  *mhz = static_cast<unsigned>(type == kClockMemory ? c.fake->memory_mhz : c.fake->sm_mhz);
  return kSuccess;
}
Ret nvmlDeviceGetClockInfo(Device device, unsigned type, unsigned* mhz) {
  BEGIN(device);
  if (type > kClockMemory) return kNotSupported;
  const bool idle = c.m->load(c.gpu, c.t) <= 0;
  *mhz = static_cast<unsigned>(type == kClockMemory ? (idle ? 405 : c.fake->memory_mhz) : c.m->sm_clock(c.gpu, c.t));
  return kSuccess;
}
Ret nvmlDeviceGetPowerManagementLimit(Device device, unsigned* limit) {
  BEGIN(device);
  *limit = milliwatts(c.m->power_limit(c.gpu));
  return kSuccess;
}
Ret nvmlDeviceGetEnforcedPowerLimit(Device device, unsigned* limit) {
  return nvmlDeviceGetPowerManagementLimit(device, limit);
}
Ret nvmlDeviceGetPowerManagementDefaultLimit(Device device, unsigned* limit) {
  BEGIN(device);
  *limit = milliwatts(c.fake->power_default_w);
  return kSuccess;
}
Ret nvmlDeviceGetPowerManagementLimitConstraints(Device device, unsigned* low, unsigned* high) {
  BEGIN(device);
  *low = milliwatts(c.fake->power_min_w), *high = milliwatts(c.fake->power_max_w);
  return kSuccess;
}
Ret nvmlDeviceSetPowerManagementLimit(Device device, unsigned limit) {
  BEGIN(device);
  if (!c.m->power_permission) return kNoPermission;
  if (limit < milliwatts(c.fake->power_min_w) || limit > milliwatts(c.fake->power_max_w)) return kInvalidArgument;
  c.m->set_power_limit(c.gpu, limit / 1000.0);
  return kSuccess;
}
Ret nvmlDeviceGetPowerUsage(Device device, unsigned* power) {
  BEGIN(device);
  *power = milliwatts(c.m->watts(c.gpu, c.t));
  return kSuccess;
}
Ret nvmlDeviceGetUtilizationRates(Device device, Utilization* rates) {
  BEGIN(device);
  const double load = c.m->load(c.gpu, c.t);
  *rates = {static_cast<unsigned>(std::lround(load * 100)), static_cast<unsigned>(std::lround(load * 60))};
  return kSuccess;
}
Ret nvmlDeviceGetFanSpeed(Device device, unsigned* percent) {
  BEGIN(device);
  if (c.fake->fans == 0) return kNotSupported;
  *percent = static_cast<unsigned>(c.m->fan_percent(c.gpu, c.t));
  return kSuccess;
}
Ret nvmlDeviceGetCurrPcieLinkGeneration(Device device, unsigned* value) {
  BEGIN(device);
  *value = static_cast<unsigned>(c.m->value(c.gpu, c.t, "pcie_gen", c.fake->pcie_gen));
  return kSuccess;
}
Ret nvmlDeviceGetCurrPcieLinkWidth(Device device, unsigned* value) {
  BEGIN(device);
  *value = static_cast<unsigned>(c.m->value(c.gpu, c.t, "pcie_width", c.fake->pcie_width));
  return kSuccess;
}
Ret nvmlDeviceGetMaxPcieLinkGeneration(Device device, unsigned* value) {
  BEGIN(device);
  *value = static_cast<unsigned>(c.fake->pcie_gen_max);
  return kSuccess;
}
Ret nvmlDeviceGetMaxPcieLinkWidth(Device device, unsigned* value) {
  BEGIN(device);
  *value = static_cast<unsigned>(c.fake->pcie_width_max);
  return kSuccess;
}
Ret nvmlDeviceGetPcieThroughput(Device device, unsigned counter, unsigned* kb) {
  BEGIN(device);
  const double mb = c.m->load(c.gpu, c.t) * (counter == kPcieRx ? c.fake->pcie_rx_mb : c.fake->pcie_tx_mb);
  *kb = static_cast<unsigned>(mb * 1024);
  return kSuccess;
}
Ret nvmlDeviceGetPersistenceMode(Device device, unsigned* mode) {
  BEGIN(device);
  *mode = c.fake->persistence;
  return kSuccess;
}
Ret nvmlDeviceGetEccMode(Device device, unsigned* now, unsigned* pending) {
  BEGIN(device);
  if (!c.fake->ecc) return kNotSupported;
  *now = *pending = 1;
  return kSuccess;
}
Ret nvmlDeviceGetTotalEccErrors(Device device, unsigned type, unsigned, unsigned long long* count) {
  BEGIN(device);
  if (!c.fake->ecc) return kNotSupported;
  const bool bad = type == kEccUncorrected;
  *count = static_cast<unsigned long long>(
      c.m->value(c.gpu, c.t, bad ? "ecc_uncorrected" : "ecc_corrected",
                 static_cast<double>(bad ? c.fake->ecc_uncorrected : c.fake->ecc_corrected)));
  return kSuccess;
}
Ret nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long* reasons) {
  BEGIN(device);
  *reasons = c.m->throttle_bits(c.gpu, c.t);
  return kSuccess;
}
Ret nvmlDeviceGetComputeRunningProcesses(Device device, unsigned* count, ProcessInfoV1* list) {
  BEGIN(device);
  const unsigned room = *count;
  *count = static_cast<unsigned>(c.fake->processes.size());
  if (*count > room) return kInsufficientSize;
  for (unsigned i = 0; i < *count; ++i)
    list[i] = {c.fake->processes[i].pid, c.fake->processes[i].memory_bytes.value_or(kNotAvailable)};
  return kSuccess;
}
Ret nvmlDeviceGetP2PStatus(Device a, Device b, unsigned, unsigned* status) {
  BEGIN(a);
  Call other(__func__, b);
  if (other.code != kSuccess) return other.code;
  *status = c.fake->peer && other.fake->peer ? 0 : 1;  // 1: the chipset can't
  return kSuccess;
}
Ret nvmlDeviceGetTopologyCommonAncestor(Device a, Device b, unsigned* level) {
  BEGIN(a);
  Call other(__func__, b);
  if (other.code != kSuccess) return other.code;
  *level = c.gpu == other.gpu ? 0 : c.fake->numa == other.fake->numa ? 30 : 50;
  return kSuccess;
}
Ret nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned* on) {
  BEGIN(device);
  if (link >= static_cast<unsigned>(c.fake->nvlinks)) return kInvalidArgument;
  *on = c.fake->nvswitch || partner(*c.m, c.gpu) >= 0;
  return kSuccess;
}
Ret nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned link, PciInfo* pci) {
  BEGIN(device);
  if (link >= static_cast<unsigned>(c.fake->nvlinks)) return kInvalidArgument;
  const int other = partner(*c.m, c.gpu);
  if (!c.fake->nvswitch && other < 0) return kNotSupported;
  put_bus_id(c.fake->nvswitch ? "00000000:F" + std::to_string(link % 4) + ":00.0" : c.m->fakes[other].bus_id, pci);
  return kSuccess;
}

#ifndef FAKE_NVML_OLD
Ret nvmlDeviceGetMemoryInfo_v2(Device device, MemoryV2* memory) {
  if (memory->version != (sizeof(MemoryV2) | 2u << 24)) return kVersionMismatch;
  Memory plain{};
  if (const Ret code = nvmlDeviceGetMemoryInfo(device, &plain); code != kSuccess) return code;
  memory->total = plain.total, memory->free = plain.free, memory->used = plain.used, memory->reserved = 0;
  return kSuccess;
}
Ret nvmlDeviceGetTemperatureV(Device device, Temperature* temperature) {
  if (temperature->version != (sizeof(Temperature) | 1u << 24)) return kVersionMismatch;
  unsigned celsius = 0;
  const Ret code = nvmlDeviceGetTemperature(device, 0, &celsius);
  temperature->celsius = static_cast<int>(celsius);
  return code;
}
Ret nvmlDeviceGetNumGpuCores(Device device, unsigned* cores) {
  BEGIN(device);
  *cores = static_cast<unsigned>(c.fake->cores);
  return kSuccess;
}
Ret nvmlDeviceGetMemoryBusWidth(Device device, unsigned* bits) {
  BEGIN(device);
  *bits = static_cast<unsigned>(c.fake->bus_width);
  return kSuccess;
}
Ret nvmlDeviceGetTotalEnergyConsumption(Device device, unsigned long long* energy) {
  BEGIN(device);
  *energy = static_cast<unsigned long long>(c.m->joules(c.gpu, c.t) * 1000);
  return kSuccess;
}
Ret nvmlDeviceGetNumFans(Device device, unsigned* fans) {
  BEGIN(device);
  *fans = static_cast<unsigned>(c.fake->fans);
  return kSuccess;
}
Ret nvmlDeviceGetFanSpeed_v2(Device device, unsigned fan, unsigned* percent) {
  BEGIN(device);
  if (fan >= static_cast<unsigned>(c.fake->fans)) return kInvalidArgument;
  *percent = static_cast<unsigned>(c.m->fan_percent(c.gpu, c.t));
  return kSuccess;
}
Ret nvmlDeviceGetMinMaxFanSpeed(Device device, unsigned* low, unsigned* high) {
  BEGIN(device);
  if (c.fake->fans == 0) return kNotSupported;
  *low = 30, *high = 100;
  return kSuccess;
}
Ret nvmlDeviceSetFanSpeed_v2(Device device, unsigned fan, unsigned percent) {
  BEGIN(device);
  if (!c.m->fan_permission) return kNoPermission;
  if (fan >= static_cast<unsigned>(c.fake->fans) || percent < 30 || percent > 100) return kInvalidArgument;
  c.m->set_fan(c.gpu, static_cast<int>(percent));
  return kSuccess;
}
Ret nvmlDeviceSetDefaultFanSpeed_v2(Device device, unsigned fan) {
  BEGIN(device);
  if (!c.m->fan_permission) return kNoPermission;
  if (fan >= static_cast<unsigned>(c.fake->fans)) return kInvalidArgument;
  c.m->set_fan(c.gpu, -1);
  return kSuccess;
}
Ret nvmlDeviceGetFanControlPolicy_v2(Device device, unsigned fan, unsigned* policy) {
  BEGIN(device);
  if (fan >= static_cast<unsigned>(c.fake->fans)) return kInvalidArgument;
  *policy = c.m->fan_set_by_hand(c.gpu);
  return kSuccess;
}
Ret nvmlDeviceGetNumaNodeId(Device device, unsigned* node) {
  BEGIN(device);
  if (c.fake->numa < 0) return kNotSupported;
  *node = static_cast<unsigned>(c.fake->numa);
  return kSuccess;
}
Ret nvmlDeviceGetNvLinkRemoteDeviceType(Device device, unsigned link, unsigned* type) {
  BEGIN(device);
  if (link >= static_cast<unsigned>(c.fake->nvlinks)) return kInvalidArgument;
  *type = c.fake->nvswitch ? kNvLinkSwitch : kNvLinkGpu;
  return kSuccess;
}
Ret nvmlDeviceGetFieldValues(Device device, int count, FieldValue* values) {
  BEGIN(device);
  for (int i = 0; i < count; ++i) {
    values[i].result = values[i].field == kFieldNvLinkSpeedCommon && c.fake->nvlinks ? kSuccess : kNotSupported;
    values[i].value_type = 1;  // unsigned int
    values[i].value.u = static_cast<unsigned>(c.fake->nvlink_mbps);
  }
  return kSuccess;
}
Ret nvmlDeviceGetCurrentClocksEventReasons(Device device, unsigned long long* reasons) {
  BEGIN(device);
  *reasons = c.m->throttle_bits(c.gpu, c.t);
  return kSuccess;
}
Ret nvmlDeviceGetComputeRunningProcesses_v2(Device device, unsigned* count, ProcessInfo* list) {
  BEGIN(device);
  const unsigned room = *count;
  *count = static_cast<unsigned>(c.fake->processes.size());
  if (*count > room) return kInsufficientSize;
  for (unsigned i = 0; i < *count; ++i)
    list[i] = {c.fake->processes[i].pid, c.fake->processes[i].memory_bytes.value_or(kNotAvailable), ~0u, ~0u};
  return kSuccess;
}
Ret nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned* count, ProcessInfo* list) {
  BEGIN(device);
  return nvmlDeviceGetComputeRunningProcesses_v2(device, count, list);
}
Ret nvmlDeviceGetMigMode(Device device, unsigned* now, unsigned* pending) {
  BEGIN(device);
  if (c.fake->cc_major < 8 || !c.fake->ecc) return kNotSupported;
  *now = *pending = c.fake->mig_on;
  return kSuccess;
}
Ret nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned* count) {
  BEGIN(device);
  *count = 7;
  return kSuccess;
}
Ret nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device* part) {
  BEGIN(device);
  if (index >= c.fake->mig.size()) return kNotFound;
  *part = handle_of(c.gpu, &c.fake->mig[index]);
  return kSuccess;
}
Ret nvmlDeviceGetSupportedEventTypes(Device device, unsigned long long* types) {
  BEGIN(device);
  *types = kEventXid;
  return kSuccess;
}
Ret nvmlDeviceRegisterEvents(Device device, unsigned long long, EventSet set) {
  BEGIN(device);
  static_cast<Events*>(set)->gpus.insert(c.gpu);
  return kSuccess;
}
Ret nvmlEventSetCreate(EventSet* set) {
  if (!g_open) return kUninitialized;
  auto* events = new Events;
  events->since = fake::machine()->now();
  *set = events;
  return kSuccess;
}
Ret nvmlEventSetFree(EventSet set) {
  delete static_cast<Events*>(set);
  return kSuccess;
}
Ret nvmlEventSetWait_v2(EventSet set, EventData* data, unsigned timeout_ms) {
  fake::Machine* m = fake::machine();
  if (!g_open || !m) return kUninitialized;
  auto* events = static_cast<Events*>(set);
  for (unsigned waited = 0;; waited += 5) {
    const double t = m->now();
    for (const fake::Event& event : m->events) {
      if (event.at > t || event.at <= events->since || !event.what.contains("xid") || !events->gpus.contains(event.gpu))
        continue;
      if (!events->delivered.insert(&event).second) continue;
      *data = {handle_of(event.gpu), kEventXid, event.what["xid"].get<unsigned long long>(), ~0u, ~0u};
      return kSuccess;
    }
    if (waited >= timeout_ms) return kTimeout;
    poll(nullptr, 0, 5);
  }
}
#endif  // FAKE_NVML_OLD

}  // extern "C"
