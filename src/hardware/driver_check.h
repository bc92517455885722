// hardware/driver_check.h -- is the NVIDIA driver new enough for the CUDA that libtorch is built with? One answer, for
// doctor and for every command that would start a worker on a GPU.
#pragma once

#include <optional>
#include <string>

#include "base/errors.h"

namespace tandem {

inline constexpr char kDriverNeeded[] = "580.65.06";  // the first with CUDA 13; scripts/versions.sh has the same

struct DriverVersions {
  std::optional<std::string> driver;  // "535.183.01"
  std::optional<int> cuda;            // the newest that it runs: 12020 is CUDA 12.2
};

// Judged by the CUDA version, since NVIDIA's compatibility packages raise that and leave the driver's; by the driver's
// own where it does not tell. A driver that tells neither counts as new enough.
bool driver_is_old(const DriverVersions& found);

// "535.183.01, up to CUDA 12.2"
std::string driver_text(const DriverVersions& found);

// How to get a newer one: a command for this distribution, or where else the driver comes from. `system` and
// `container` as in hardware/machine.h.
std::string newer_driver_advice(const std::optional<std::string>& system, const std::optional<std::string>& container);
std::string newer_driver_advice();  // for this machine

// A worker on a GPU was asked for, and the driver can't run it.
class OldDriverError : public ConfigError {
 public:
  explicit OldDriverError(const DriverVersions& found);
};

}  // namespace tandem
