#include "hardware/driver_check.h"

#include <fmt/format.h>

#include <charconv>

#include "hardware/cuda_needed.h"
#include "hardware/machine.h"

namespace tandem {
namespace {

constexpr int kBranchNeeded = 580;

std::string cuda_version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// "535.183.01" is of branch 535.
std::optional<int> branch_of(const std::string& driver) {
  int branch = 0;
  const auto [end, error] = std::from_chars(driver.data(), driver.data() + driver.size(), branch);
  if (error != std::errc()) return std::nullopt;
  return branch;
}

}  // namespace

bool driver_is_old(const DriverVersions& found) {
  if (found.cuda) return *found.cuda < kCudaNeeded;
  const auto branch = found.driver ? branch_of(*found.driver) : std::nullopt;
  return branch && *branch < kBranchNeeded;
}

std::string driver_text(const DriverVersions& found) {
  return fmt::format("{}, up to CUDA {}", found.driver.value_or("unknown version"),
                     found.cuda ? cuda_version_text(*found.cuda) : "(unknown)");
}

std::string newer_driver_advice(const std::optional<std::string>& system, const std::optional<std::string>& container) {
  if (container == "wsl") return "update the NVIDIA driver in Windows to 580 or newer";
  if (container) return fmt::format("update the driver of the host to 580 or newer ({} uses the host's)", *container);
  if (system && system->starts_with("Ubuntu")) return "sudo apt install nvidia-driver-580 && sudo reboot";
  if (system && system->starts_with("Debian"))
    return "sudo apt install nvidia-open && sudo reboot   (580 or newer, from NVIDIA's repository: docs/building.md)";
  return "install NVIDIA driver 580 or newer (https://www.nvidia.com/drivers), then reboot";
}

std::string newer_driver_advice() {
  const MachineFacts machine = machine_facts();
  return newer_driver_advice(machine.system, machine.container);
}

OldDriverError::OldDriverError(const DriverVersions& found)
    : ConfigError(fmt::format("the NVIDIA driver is too old: {}", driver_text(found)),
                  fmt::format("libtorch is built with CUDA {}, which needs driver {} or newer",
                              cuda_version_text(kCudaNeeded), kDriverNeeded),
                  fmt::format("train on the CPU with `--devices cpu`; or for the GPU: {}", newer_driver_advice())) {}

}  // namespace tandem
