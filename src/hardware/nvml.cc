#include "hardware/nvml.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "hardware/in_time.h"
#include "hardware/nvml_impl.h"

namespace tandem {

using Kind = NvmlStatus::Kind;

NvmlStatus Nvml::Impl::word(nvml::Ret code) const {
  Kind kind = Kind::kOther;
  switch (code) {
    case nvml::kSuccess:
      return {};
    case nvml::kInvalidArgument:
      kind = Kind::kInvalid;
      break;
    case nvml::kNotSupported:
      kind = Kind::kNotSupported;
      break;
    case nvml::kNoPermission:
      kind = Kind::kNoPermission;
      break;
    case nvml::kDriverNotLoaded:
    case nvml::kLibRmVersionMismatch:
      kind = Kind::kNoDriver;
      break;
    case nvml::kTimeout:
      kind = Kind::kTimeout;
      break;
    case nvml::kFunctionNotFound:
      kind = Kind::kNoFunction;
      break;
    case nvml::kGpuIsLost:
      kind = Kind::kGpuLost;
      break;
    default:
      break;
  }
  const char* words = nvmlErrorString ? nvmlErrorString(code) : nullptr;
  return {kind, words ? words : "NVML error " + std::to_string(code)};
}

std::string Nvml::library_name() {
  const char* other = std::getenv("TANDEM_NVML");
  return other && *other ? other : "libnvidia-ml.so.1";
}

Nvml::Nvml() : impl_(std::make_unique<Impl>()) {}

std::unique_ptr<Nvml> Nvml::open() {
  std::unique_ptr<Nvml> nvml(new Nvml);
  Impl& impl = *nvml->impl_;
  impl.library = dlopen(library_name().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!impl.library) {
    const char* words = dlerror();
    impl.status = {Kind::kNoLibrary, words ? words : library_name() + " cannot be loaded"};
    return nvml;
  }
#define TANDEM_FIND(name, arguments) impl.name = reinterpret_cast<decltype(impl.name)>(dlsym(impl.library, #name));
  TANDEM_NVML_FUNCTIONS(TANDEM_FIND)
#undef TANDEM_FIND
  impl.nvmlErrorString = reinterpret_cast<const char* (*)(nvml::Ret)>(dlsym(impl.library, "nvmlErrorString"));
  if (!impl.nvmlInit_v2 || !impl.nvmlDeviceGetCount_v2 || !impl.nvmlDeviceGetHandleByIndex_v2) {
    impl.status = {Kind::kNoFunction, library_name() + " has no nvmlInit_v2: it is no NVML, or one from before 2012"};
    return nvml;
  }
  impl.status = impl.word(impl.nvmlInit_v2());
  if (!impl.status.ok()) return nvml;
  impl.initialized = true;
  impl.find_devices();
  return nvml;
}

NvmlStatus Nvml::no_answer(double seconds) {
  char number[32];
  std::snprintf(number, sizeof number, "%g", seconds);
  return {Kind::kTimeout, std::string("nothing came back in ") + number + " s"};
}

std::unique_ptr<Nvml> Nvml::open_in_time(double seconds) {
  if (seconds <= 0) seconds = driver_seconds();
  auto answer = in_time<std::unique_ptr<Nvml>>(seconds, [] {
    auto nvml = open();
    for (const GpuFacts& facts : nvml->facts()) nvml->reading(facts.index);
    return nvml;
  });
  if (answer) return std::move(*answer);
  std::unique_ptr<Nvml> nvml(new Nvml);
  nvml->impl_->status = no_answer(seconds);
  return nvml;
}

Nvml::~Nvml() {
  if (impl_->events && impl_->nvmlEventSetFree) impl_->nvmlEventSetFree(impl_->events);
  if (impl_->initialized && impl_->nvmlShutdown) impl_->nvmlShutdown();
  if (impl_->library) dlclose(impl_->library);
}

void Nvml::Impl::find_devices() {
  unsigned count = 0;
  status = word(nvmlDeviceGetCount_v2(&count));
  if (!status.ok()) return;
  for (unsigned i = 0; i < count; ++i) {
    nvml::Device handle = nullptr;
    device_status.push_back(word(nvmlDeviceGetHandleByIndex_v2(i, &handle)));
    devices.push_back(device_status.back().ok() ? handle : nullptr);
    limit_at_open.push_back(devices.back() ? thousandths(nvmlDeviceGetPowerManagementLimit, handle) : std::nullopt);
  }
}

NvmlStatus Nvml::Impl::device(int gpu, nvml::Device& handle) const {
  if (!status.ok()) return status;
  if (gpu < 0 || gpu >= static_cast<int>(devices.size()))
    return {Kind::kInvalid, "there is no GPU " + std::to_string(gpu) + ", only " + std::to_string(devices.size())};
  handle = devices[gpu];
  return device_status[gpu];
}

// Not ok where the GPU reports neither name nor uuid nor memory, as every healthy GPU does: a lost one says so, one
// whose firmware has hung answers "Unknown Error" to everything.
NvmlStatus Nvml::Impl::silence(nvml::Device handle) const {
  char text[nvml::kUuidBuffer] = "";
  nvml::Memory memory{};
  nvml::Ret worst = nvml::kSuccess;
  const auto answers = [&](auto function, auto... arguments) {
    const nvml::Ret code = function ? function(handle, arguments...) : nvml::kFunctionNotFound;
    if (worst != nvml::kGpuIsLost && function) worst = code;
    return code == nvml::kSuccess;
  };
  if (answers(nvmlDeviceGetName, text, sizeof text)) return {};
  if (worst == nvml::kGpuIsLost) return word(worst);
  if (answers(nvmlDeviceGetUUID, text, sizeof text) || answers(nvmlDeviceGetMemoryInfo, &memory)) return {};
  return word(worst);
}

const NvmlStatus& Nvml::status() const { return impl_->status; }
int Nvml::count() const { return static_cast<int>(impl_->devices.size()); }

std::optional<std::string> Nvml::driver_version() const {
  char text[96] = "";
  if (!impl_->initialized || !impl_->nvmlSystemGetDriverVersion ||
      impl_->nvmlSystemGetDriverVersion(text, sizeof text) != nvml::kSuccess)
    return std::nullopt;
  return text;
}

std::optional<std::string> Nvml::nvml_version() const {
  char text[96] = "";
  if (!impl_->initialized || !impl_->nvmlSystemGetNVMLVersion ||
      impl_->nvmlSystemGetNVMLVersion(text, sizeof text) != nvml::kSuccess)
    return std::nullopt;
  return text;
}

std::optional<int> Nvml::cuda_version() const {
  if (!impl_->initialized) return std::nullopt;
  return impl_->ask<int>(impl_->nvmlSystemGetCudaDriverVersion_v2);
}

namespace {

// NVML counts cores, not SMs; what one SM has depends on the generation.
std::optional<int> cores_per_sm(int major, int minor) {
  if (major == 7 || (major == 8 && minor == 0)) return 64;
  if (major >= 8) return 128;
  if (major == 6) return minor == 0 ? 64 : 128;
  if (major == 5) return 128;
  return std::nullopt;
}

}  // namespace

std::optional<std::string> Nvml::Impl::bus_id(nvml::Device d) const {
  const auto pci = ask<nvml::PciInfo>(nvmlDeviceGetPciInfo_v3, d);
  if (!pci) return std::nullopt;
  return std::string(pci->bus_id, strnlen(pci->bus_id, sizeof pci->bus_id));
}

std::vector<NvLinkPeer> Nvml::Impl::nvlink_peers(nvml::Device d) const {
  std::vector<NvLinkPeer> peers;
  for (unsigned link = 0; link < nvml::kMaxLinks; ++link) {
    const auto on = ask<unsigned>(nvmlDeviceGetNvLinkState, d, link);
    if (!on) break;  // no such link
    if (!*on) continue;
    const auto pci = ask<nvml::PciInfo>(nvmlDeviceGetNvLinkRemotePciInfo_v2, d, link);
    if (!pci) continue;
    const std::string bus_id(pci->bus_id, strnlen(pci->bus_id, sizeof pci->bus_id));
    const auto type = ask<unsigned>(nvmlDeviceGetNvLinkRemoteDeviceType, d, link);
    NvLinkPeer* peer = nullptr;
    for (NvLinkPeer& known : peers) {
      if (known.bus_id == bus_id) peer = &known;
    }
    if (!peer) peer = &peers.emplace_back(NvLinkPeer{bus_id, {}, type == nvml::kNvLinkSwitch, 0});
    ++peer->links;
  }
  return peers;
}

std::vector<GpuFacts> Nvml::facts() const {
  std::vector<GpuFacts> all;
  for (int i = 0; i < count(); ++i) all.push_back(facts(i));
  for (GpuFacts& one : all) {
    for (NvLinkPeer& peer : one.nvlink_peers) {
      for (const GpuFacts& other : all) {
        if (other.bus_id && *other.bus_id == peer.bus_id) peer.gpu = other.index;
      }
    }
  }
  return all;
}

GpuFacts Nvml::facts(int gpu) const {
  const Impl& n = *impl_;
  GpuFacts facts;
  facts.index = gpu;
  nvml::Device d = nullptr;
  NvmlStatus status = n.device(gpu, d);
  if (status.ok()) status = n.silence(d);
  if (!status.ok()) {
    facts.trouble = status.words;
    return facts;
  }
  facts.name = n.text(n.nvmlDeviceGetName, d);
  facts.uuid = n.text(n.nvmlDeviceGetUUID, d);
  facts.bus_id = n.bus_id(d);
  if (const auto memory = n.ask<nvml::Memory>(n.nvmlDeviceGetMemoryInfo, d)) facts.memory_bytes = memory->total;
  facts.cuda_cores = n.number(n.nvmlDeviceGetNumGpuCores, d);
  int major = 0, minor = 0;
  if (n.nvmlDeviceGetCudaComputeCapability &&
      n.nvmlDeviceGetCudaComputeCapability(d, &major, &minor) == nvml::kSuccess) {
    facts.cc_major = major, facts.cc_minor = minor;
    const auto per_sm = cores_per_sm(major, minor);
    if (facts.cuda_cores && per_sm) facts.sms = *facts.cuda_cores / *per_sm;
  }
  const auto bus_width = n.number(n.nvmlDeviceGetMemoryBusWidth, d);
  const auto memory_clock = n.number(n.nvmlDeviceGetMaxClockInfo, d, nvml::kClockMemory);
  if (bus_width && memory_clock && *bus_width > 0 && *memory_clock > 0)
    facts.bandwidth_bytes_per_s = 2.0 * *memory_clock * 1e6 * *bus_width / 8;
  facts.power_limit_w = n.thousandths(n.nvmlDeviceGetPowerManagementLimit, d);
  facts.power_default_w = n.thousandths(n.nvmlDeviceGetPowerManagementDefaultLimit, d);
  unsigned low = 0, high = 0;
  if (n.nvmlDeviceGetPowerManagementLimitConstraints &&
      n.nvmlDeviceGetPowerManagementLimitConstraints(d, &low, &high) == nvml::kSuccess)
    facts.power_min_w = low / 1000.0, facts.power_max_w = high / 1000.0;
  facts.slowdown_c = n.number(n.nvmlDeviceGetTemperatureThreshold, d, nvml::kThresholdSlowdown);
  facts.shutdown_c = n.number(n.nvmlDeviceGetTemperatureThreshold, d, nvml::kThresholdShutdown);
  facts.fans = n.number(n.nvmlDeviceGetNumFans, d);
  if (n.nvmlDeviceGetMinMaxFanSpeed && n.nvmlDeviceGetMinMaxFanSpeed(d, &low, &high) == nvml::kSuccess)
    facts.fan_min_percent = static_cast<int>(low), facts.fan_max_percent = static_cast<int>(high);
  facts.pcie_generation = n.number(n.nvmlDeviceGetCurrPcieLinkGeneration, d);
  facts.pcie_width = n.number(n.nvmlDeviceGetCurrPcieLinkWidth, d);
  facts.pcie_generation_max = n.number(n.nvmlDeviceGetMaxPcieLinkGeneration, d);
  facts.pcie_width_max = n.number(n.nvmlDeviceGetMaxPcieLinkWidth, d);
  facts.numa_node = n.number(n.nvmlDeviceGetNumaNodeId, d);
  facts.persistence_mode = n.flag(n.nvmlDeviceGetPersistenceMode, d);
  unsigned now = 0, pending = 0;
  if (n.nvmlDeviceGetEccMode && n.nvmlDeviceGetEccMode(d, &now, &pending) == nvml::kSuccess) facts.ecc_mode = now != 0;
  facts.nvlink_peers = n.nvlink_peers(d);
  if (!facts.nvlink_peers.empty() && n.nvmlDeviceGetFieldValues) {
    nvml::FieldValue speed{};
    speed.field = nvml::kFieldNvLinkSpeedCommon;
    if (n.nvmlDeviceGetFieldValues(d, 1, &speed) == nvml::kSuccess && speed.result == nvml::kSuccess && speed.value.u)
      facts.nvlink_bytes_per_s = speed.value.u * 1e6;
  }
  if (n.nvmlDeviceGetMigMode && n.nvmlDeviceGetMigMode(d, &now, &pending) == nvml::kSuccess) {
    facts.mig_on = now != 0;
    const unsigned most = *facts.mig_on ? n.ask<unsigned>(n.nvmlDeviceGetMaxMigDeviceCount, d).value_or(0) : 0;
    for (unsigned i = 0; i < most; ++i) {
      const auto part = n.ask<nvml::Device>(n.nvmlDeviceGetMigDeviceHandleByIndex, d, i);
      if (!part) continue;
      MigInstance instance;
      instance.uuid = n.text(n.nvmlDeviceGetUUID, *part).value_or("");
      instance.name = n.text(n.nvmlDeviceGetName, *part).value_or("");
      if (const auto memory = n.ask<nvml::Memory>(n.nvmlDeviceGetMemoryInfo, *part))
        instance.memory_bytes = memory->total;
      facts.mig.push_back(std::move(instance));
    }
  }
  return facts;
}

GpuLink Nvml::link(int from, int to) const {
  const Impl& n = *impl_;
  GpuLink link;
  nvml::Device a = nullptr, b = nullptr;
  if (from == to || !n.device(from, a).ok() || !n.device(to, b).ok()) return link;
  if (const auto level = n.ask<unsigned>(n.nvmlDeviceGetTopologyCommonAncestor, a, b)) {
    switch (*level) {
      case 0:
        link.topology = "X";
        break;
      case 10:
        link.topology = "PIX";
        break;
      case 20:
        link.topology = "PXB";
        break;
      case 30:
        link.topology = "PHB";
        break;
      case 40:
        link.topology = "NODE";
        break;
      case 50:
        link.topology = "SYS";
        break;
      default:
        break;
    }
  }
  if (const auto status = n.ask<unsigned>(n.nvmlDeviceGetP2PStatus, a, b, nvml::kP2pRead))
    link.peer_read = *status == 0;
  const std::optional<std::string> other = n.bus_id(b);
  int links = 0;
  for (const NvLinkPeer& peer : n.nvlink_peers(a)) {
    if (peer.is_switch || (other && peer.bus_id == *other)) links += peer.links;
  }
  if (links) link.topology = "NV" + std::to_string(links);
  return link;
}

}  // namespace tandem
