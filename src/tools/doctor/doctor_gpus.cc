// tools/doctor/doctor_gpus.cc -- driver, CUDA and GPUs, as doctor sees and judges them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>

#include "config/gpu_ids.h"
#include "config/visible_gpus.h"
#include "hardware/cuda_needed.h"
#include "hardware/driver_check.h"
#include "hardware/in_time.h"
#include "tools/doctor/doctor.h"
#include "tools/gpus/gpus.h"

namespace tandem {
namespace {

constexpr double kBytesPerGiB = 1ull << 30;

int on_bus(const char* vendor) {
  int count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/bus/pci/devices", error)) {
    std::string maker, kind;
    std::ifstream(entry.path() / "vendor") >> maker;
    std::ifstream(entry.path() / "class") >> kind;
    if (maker == vendor && (kind.starts_with("0x03") || kind.starts_with("0x12"))) ++count;  // display, accelerator
  }
  return count;
}

std::string cuda_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string gpu_name(const GpuFacts& facts) {
  return fmt::format("GPU {} ({})", facts.index, facts.name.value_or("no name"));
}

Finding driver_finding(const GpusSeen& gpus) {
  using Kind = NvmlStatus::Kind;
  switch (gpus.status.kind) {
    case Kind::kOk:
      break;
    case Kind::kNoLibrary:
      if (gpus.nvidia_on_bus > 0)
        return {"driver", Verdict::kProblem,
                fmt::format("{} NVIDIA GPU{} on the bus, but no driver ({})", gpus.nvidia_on_bus,
                            gpus.nvidia_on_bus == 1 ? "" : "s", gpus.status.words),
                "sudo apt install nvidia-driver   (580 or newer; in a container: docker run --gpus all)"};
      return {"driver", Verdict::kOk,
              gpus.amd_on_bus > 0 ? "no NVIDIA driver; AMD GPUs do not train yet: the CPU does"
                                  : "no NVIDIA driver and no NVIDIA GPU: the CPU trains"};
    case Kind::kNoDriver:
      return {"driver", Verdict::kProblem,
              fmt::format("the driver's library is there, but it answers: {}", gpus.status.words),
              gpus.status.words.find("mismatch") != std::string::npos
                  ? "sudo reboot   (the driver was updated under the running kernel module)"
                  : "sudo modprobe nvidia && nvidia-smi"};
    case Kind::kTimeout:
      return {"driver", Verdict::kProblem, "does not answer: " + gpus.status.words, kDriverHangsTodo};
    default:
      return {"driver", Verdict::kProblem, "NVML answers: " + gpus.status.words, "nvidia-smi"};
  }
  const DriverVersions versions{gpus.driver, gpus.driver_cuda};
  if (!gpus.facts.empty() && driver_is_old(versions))
    return {
        "driver", Verdict::kProblem,
        fmt::format("{}: older than CUDA {} needs ({})", driver_text(versions), cuda_text(kCudaNeeded), kDriverNeeded),
        newer_driver_advice()};
  return {"driver", Verdict::kOk, driver_text(versions)};
}

Finding cuda_finding(const GpusSeen& gpus) {
  if (gpus.status.kind == NvmlStatus::Kind::kTimeout)
    return {"CUDA", Verdict::kOk, "not asked: the driver does not answer"};
  if (gpus.facts.empty()) return {"CUDA", Verdict::kOk, "not asked: there is no GPU"};
  if (!gpus.cuda_build)
    return {"CUDA", Verdict::kProblem,
            "this build of tandem has no CUDA (libtandem_cuda.so is not beside the program): GPUs can't train",
            "make setup CUDA=pypi && make build CUDA=pypi"};
  const CudaDriver& cuda = *gpus.cuda;
  if (!cuda.library_found)
    return {"CUDA", Verdict::kProblem, "libcuda.so.1 can't be loaded: " + cuda.trouble,
            "sudo apt install libcuda1   (in a container: docker run --gpus all)"};
  if (cuda.init_code == CudaDriver::kNoDevice && gpus.visible_devices)
    return {"CUDA", Verdict::kProblem,
            fmt::format("CUDA_VISIBLE_DEVICES=\"{}\" hides every GPU", *gpus.visible_devices),
            "unset CUDA_VISIBLE_DEVICES"};
  if (!cuda.ok())
    return {"CUDA", Verdict::kProblem, "cuInit fails: " + cuda.trouble,
            cuda.init_code == 803 ? "sudo reboot   (driver and library are of two versions)"
                                  : "sudo modprobe nvidia_uvm && nvidia-smi"};
  return {"CUDA", Verdict::kOk,
          fmt::format("cuInit succeeds, CUDA {} in the driver", cuda.version ? cuda_text(*cuda.version) : "?")};
}

Finding visible_finding(const GpusSeen& gpus) {
  const size_t present = gpus.facts.size();
  if (gpus.status.kind == NvmlStatus::Kind::kTimeout)
    return {"GPUs", Verdict::kOk, "not known: the driver does not answer; CPU workers train"};
  if (present == 0) return {"GPUs", Verdict::kOk, "none: CPU workers train"};
  const size_t visible = gpus.cuda ? gpus.cuda->devices.size() : present;
  if (visible >= present) return {"GPUs", Verdict::kOk, fmt::format("{} present, {} visible", present, visible)};
  std::string todo = "dmesg | grep -i -e NVRM -e Xid", why;
  if (gpus.visible_devices) {
    why = fmt::format(" (CUDA_VISIBLE_DEVICES=\"{}\" hides the others)", *gpus.visible_devices);
    todo = "unset CUDA_VISIBLE_DEVICES";
  }
  return {"GPUs", Verdict::kWarning, fmt::format("{} present, {} visible{}", present, visible, why), todo};
}

void judge_memory(const GpuFacts& facts, const GpuReading& now, Findings& all) {
  if (!now.memory_free_bytes || !facts.memory_bytes) {
    all.push_back({"memory", Verdict::kOk, gpu_name(facts) + ": the driver does not tell"});
    return;
  }
  const double free = static_cast<double>(*now.memory_free_bytes) / kBytesPerGiB,
               total = static_cast<double>(*facts.memory_bytes) / kBytesPerGiB;
  std::string others;
  for (const GpuProcess& process : now.processes.value_or(std::vector<GpuProcess>{})) {
    others += fmt::format("{}{} (pid {}{})", others.empty() ? "" : ", ",
                          process.name ? program_of(*process.name) : "a process", process.pid,
                          process.memory_bytes
                              ? fmt::format(", {:.1f} GiB", static_cast<double>(*process.memory_bytes) / kBytesPerGiB)
                              : "");
  }
  const bool tight = free < 1.0 || free < 0.25 * total;
  const std::string text = fmt::format("{}: {:.1f} of {:.1f} GiB free", gpu_name(facts), free, total);
  if (!others.empty())
    all.push_back(
        {"memory", Verdict::kWarning, fmt::format("{}; used by {}", text, others),
         fmt::format("nvidia-smi -i {} --query-compute-apps=pid,name,used_memory --format=csv", facts.index)});
  else
    all.push_back({"memory", tight ? Verdict::kWarning : Verdict::kOk, text,
                   tight ? fmt::format("nvidia-smi -i {}", facts.index) : ""});
}

void judge_health(const GpuFacts& facts, const GpuReading& now, const std::string& example, Findings& all) {
  const std::string name = gpu_name(facts);
  if (facts.cc_major && *facts.cc_major * 10 + facts.cc_minor.value_or(0) < 75)
    all.push_back(
        {"card", Verdict::kProblem,
         fmt::format("{}: compute capability {}.{}; CUDA 13 needs 7.5", name, *facts.cc_major, *facts.cc_minor),
         fmt::format("tandem train {} --devices cpu", example), facts.index});
  if (now.temperature_c &&
      (*now.temperature_c >= 85 || (facts.slowdown_c && *now.temperature_c >= *facts.slowdown_c - 5)))
    all.push_back(
        {"heat", Verdict::kWarning,
         fmt::format("{}: {} C now{}", name, *now.temperature_c,
                     facts.slowdown_c ? fmt::format(", slows down at {} C", *facts.slowdown_c) : ""),
         fmt::format("nvidia-smi -i {} -q -d TEMPERATURE   (then: dust, case fans, `tandem guard`)", facts.index)});
  for (const Throttle reason : now.throttle.value_or(std::vector<Throttle>{})) {
    if (throttle_is_thermal(reason) || reason == Throttle::kPowerBrake)
      all.push_back({"throttling", Verdict::kWarning,
                     fmt::format("{}: its clock is held down by {}", name, throttle_in_words(reason)),
                     fmt::format("nvidia-smi -i {} -q -d PERFORMANCE,POWER,TEMPERATURE", facts.index)});
  }
  if (facts.power_limit_w && facts.power_default_w && *facts.power_limit_w < 0.9 * *facts.power_default_w)
    all.push_back({"power", Verdict::kWarning,
                   fmt::format("{}: limited to {:.0f} W, its default is {:.0f} W", name, *facts.power_limit_w,
                               *facts.power_default_w),
                   fmt::format("sudo nvidia-smi -i {} -pl {:.0f}", facts.index, *facts.power_default_w)});
  if (now.ecc_uncorrected.value_or(0) > 0)
    all.push_back(
        {"ECC", Verdict::kProblem,
         fmt::format("{}: {} uncorrected memory errors since the driver was loaded", name, *now.ecc_uncorrected),
         fmt::format("sudo nvidia-smi -r -i {}   (if they come back, replace the GPU)", facts.index), facts.index});
  else if (now.ecc_corrected.value_or(0) > 100)
    all.push_back({"ECC", Verdict::kWarning, fmt::format("{}: {} corrected memory errors", name, *now.ecc_corrected),
                   fmt::format("nvidia-smi -i {} -q -d ECC", facts.index)});
  if (facts.pcie_width && facts.pcie_width_max && *facts.pcie_width < *facts.pcie_width_max)
    all.push_back({"PCIe", Verdict::kWarning,
                   fmt::format("{}: {} lanes of {}", name, *facts.pcie_width, *facts.pcie_width_max),
                   "reseat the GPU or its riser, or give it another slot; then: nvidia-smi -q -d PCIE"});
  if (facts.persistence_mode && !*facts.persistence_mode)
    all.push_back({"persistence", Verdict::kWarning,
                   name + ": persistence mode is off, so each start waits for the driver",
                   fmt::format("sudo nvidia-smi -i {} -pm 1", facts.index)});
  if (facts.mig_on.value_or(false)) {
    if (facts.mig.empty())
      all.push_back({"MIG", Verdict::kProblem, name + ": MIG is on, but it has no parts, so nothing can run on it",
                     fmt::format("sudo nvidia-smi -i {} -mig 0", facts.index), facts.index});
    else
      all.push_back({"MIG", Verdict::kOk, fmt::format("{}: {} parts", name, facts.mig.size()),
                     fmt::format("CUDA_VISIBLE_DEVICES={} tandem train {}", facts.mig.front().uuid, example)});
  }
}

Finding peer_finding(const GpusSeen& gpus) {
  int can = 0, cannot = 0, unknown = 0;
  std::string nvlinks;
  for (size_t a = 0; a < gpus.links.size(); ++a) {
    for (size_t b = 0; b < gpus.links.size(); ++b) {
      if (a == b || !gpus.facts[a].trouble.empty() || !gpus.facts[b].trouble.empty()) continue;
      const GpuLink& link = gpus.links[a][b];
      (link.peer_read ? (*link.peer_read ? can : cannot) : unknown)++;
      if (link.topology && link.topology->starts_with("NV")) nvlinks = *link.topology;
    }
  }
  if (can + cannot + unknown == 0) return {"peer access", Verdict::kOk, "one GPU: there is no pair"};
  if (cannot == 0 && unknown == 0)
    return {"peer access", Verdict::kOk, "between all GPUs" + (nvlinks.empty() ? std::string() : ", over " + nvlinks)};
  if (can + cannot == 0) return {"peer access", Verdict::kOk, "the driver does not tell"};
  return {"peer access", Verdict::kOk,
          fmt::format("{} of {} pairs; the others combine through host memory: slower, same bits", can / 2,
                      (can + cannot + unknown) / 2)};
}

}  // namespace

std::string program_of(const std::string& command_line) {
  const std::string path = command_line.substr(0, command_line.find(' '));
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos || slash + 1 == path.size() ? path : path.substr(slash + 1);
}

std::string_view verdict_name(Verdict verdict) {
  return verdict == Verdict::kOk ? "ok" : verdict == Verdict::kWarning ? "warning" : "problem";
}

namespace {

GpusSeen ask_drivers() {
  GpusSeen gpus;
  const auto nvml = Nvml::open();
  gpus.status = nvml->status();
  gpus.driver = nvml->driver_version();
  gpus.driver_cuda = nvml->cuda_version();
  gpus.facts = nvml->facts();
  for (const GpuFacts& facts : gpus.facts) {
    gpus.now.push_back(nvml->reading(facts.index));
    auto& row = gpus.links.emplace_back();
    for (const GpuFacts& other : gpus.facts) row.push_back(nvml->link(facts.index, other.index));
  }
  if (!gpus.facts.empty()) gpus.cuda = ask_cuda_driver();
  return gpus;
}

// What `train` numbers its devices by (config/gpu_ids.h): a GPU that does not tell who it is has no number there.
std::vector<GpuId> numbered_gpus(const GpusSeen& gpus) {
  std::vector<GpuId> ids;
  for (const GpuFacts& facts : gpus.facts)
    if (facts.uuid) ids.push_back({*facts.uuid, facts.name.value_or("")});
  return visible_gpu_ids(ids, gpus.visible_devices ? gpus.visible_devices->c_str() : nullptr);
}

// The GPU itself, or a part that MIG has made of it.
bool is_of(const std::string& uuid, const GpuFacts& facts) {
  return uuid == facts.uuid || std::ranges::any_of(facts.mig, [&](const MigInstance& m) { return m.uuid == uuid; });
}

}  // namespace

std::vector<UsableGpu> usable_gpus(const Findings& findings, const GpusSeen& gpus) {
  constexpr std::string_view kOfGpus[] = {"driver", "CUDA", "card", "MIG", "ECC", "libtorch", "on cards"};
  if (!gpus.cuda_build || !gpus.cuda || !gpus.cuda->ok()) return {};
  std::set<int> broken;
  for (const Finding& finding : findings) {
    if (finding.verdict != Verdict::kProblem || std::ranges::find(kOfGpus, finding.check) == std::end(kOfGpus))
      continue;
    if (finding.gpu < 0) return {};  // of all of them
    broken.insert(finding.gpu);
  }
  std::vector<UsableGpu> usable;
  const std::vector<GpuId> numbered = numbered_gpus(gpus);
  for (size_t device = 0; device < numbered.size(); ++device) {
    const auto facts =
        std::ranges::find_if(gpus.facts, [&](const GpuFacts& one) { return is_of(numbered[device].uuid, one); });
    if (facts == gpus.facts.end() || broken.contains(facts->index)) continue;
    if (std::ranges::any_of(gpus.cuda->devices,
                            [&](const CudaDevice& seen) { return seen.uuid.empty() || is_of(seen.uuid, *facts); }))
      usable.push_back({static_cast<int>(device), facts->index});
  }
  return usable;
}

std::string devices_flag(const std::vector<UsableGpu>& usable, const GpusSeen& gpus) {
  // A GPU that is gone altogether has no number, but may be back when the command is typed.
  const std::vector<bool> visible =
      visible_gpus(gpus.facts, gpus.visible_devices ? gpus.visible_devices->c_str() : nullptr);
  const auto shown = static_cast<size_t>(std::ranges::count(visible, true));
  if (usable.empty() || usable.size() >= std::max(shown, numbered_gpus(gpus).size())) return "";
  std::vector<std::string> names;
  for (const UsableGpu& gpu : usable) names.push_back(fmt::format("cuda:{}", gpu.device));
  return fmt::format("--devices {}", fmt::join(names, ","));
}

GpusSeen look_at_gpus(bool cuda_build) {
  GpusSeen gpus;
  if (auto seen = in_time<GpusSeen>(driver_seconds(), ask_drivers))
    gpus = std::move(*seen);
  else
    gpus.status = Nvml::no_answer(driver_seconds());
  gpus.cuda_build = cuda_build;
  if (const char* list = std::getenv("CUDA_VISIBLE_DEVICES")) gpus.visible_devices = list;
  gpus.nvidia_on_bus = on_bus("0x10de");
  gpus.amd_on_bus = on_bus("0x1002");
  return gpus;
}

Findings judge_gpus(const GpusSeen& gpus) {
  Findings all;
  all.push_back(driver_finding(gpus));
  all.push_back(cuda_finding(gpus));
  all.push_back(visible_finding(gpus));
  for (size_t i = 0; i < gpus.facts.size(); ++i) {
    const GpuFacts& facts = gpus.facts[i];
    const std::string trouble = facts.trouble.empty() ? gpus.now[i].trouble : facts.trouble;
    if (!trouble.empty()) {
      all.push_back(
          {"card", Verdict::kProblem, fmt::format("GPU {}: {}", facts.index, trouble),
           "sudo dmesg | grep -i xid   (then restart the machine; if it repeats: power cables, PSU, riser, heat)",
           facts.index});
      continue;
    }
    judge_memory(facts, gpus.now[i], all);
    judge_health(facts, gpus.now[i], gpus.example, all);
  }
  if (!gpus.facts.empty()) all.push_back(peer_finding(gpus));
  return all;
}

}  // namespace tandem
