// hardware/nvml.h -- NVIDIA's management library, opened at run time: what GPUs there are and how they are.
//
// Any function may be missing in an old driver, and any may be refused: a value is then absent, a command returns
// NVML's own words. TANDEM_NVML names another library than libnvidia-ml.so.1 (tests do). Calls take no lock of
// ours, as NVML takes its own: several threads may use one Nvml.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hardware/gpu.h"

namespace tandem {

struct NvmlStatus {
  enum class Kind {
    kOk,
    kNoLibrary,     // no driver is installed here
    kNoDriver,      // its library is there, its kernel module is not (or is another version's)
    kNoFunction,    // an older driver's library
    kNotSupported,  // by this GPU
    kNoPermission,
    kGpuLost,
    kTimeout,
    kInvalid,  // no such GPU, a limit out of range
    kOther,
  };
  Kind kind = Kind::kOk;
  std::string words;  // "Insufficient Permissions"; for a library that is not there, the loader's words
  bool ok() const { return kind == Kind::kOk; }
};

template <class T>
struct NvmlResult {
  NvmlStatus status;
  std::optional<T> value;
  bool ok() const { return status.ok(); }
};

struct XidEvent {
  int gpu = -1;  // -1: a GPU that is not in our list
  uint64_t xid = 0;
  std::optional<uint32_t> gpu_instance;  // MIG
};

// How two GPUs are joined; words of `nvidia-smi topo -m`: "NV4", "PIX", "PXB", "PHB", "NODE", "SYS".
struct GpuLink {
  std::optional<std::string> topology;
  std::optional<bool> peer_read;  // one may read the other's memory
};

class Nvml {
 public:
  // Never null: ask status(). Opening takes NVML's own time, 10 to 500 ms with a real driver.
  static std::unique_ptr<Nvml> open();
  // The same, and every GPU read once, by a thread that may take `seconds` (0: driver_seconds()); after them the
  // status is kTimeout, and in_time.h says how such a program ends.
  static std::unique_ptr<Nvml> open_in_time(double seconds = 0);
  static NvmlStatus no_answer(double seconds);  // that status
  static std::string library_name();            // TANDEM_NVML, or libnvidia-ml.so.1
  ~Nvml();

  const NvmlStatus& status() const;
  int count() const;  // 0 unless ok

  std::optional<std::string> driver_version() const;  // "580.65.06"
  std::optional<std::string> nvml_version() const;
  std::optional<int> cuda_version() const;  // what the driver can do: 13000 is CUDA 13.0

  std::vector<GpuFacts> facts() const;
  GpuFacts facts(int gpu) const;
  GpuReading reading(int gpu, bool with_processes = true) const;
  GpuLink link(int from, int to) const;

  NvmlStatus set_power_limit(int gpu, double watts);
  NvmlStatus restore_power_limit(int gpu);  // to what it was when this was opened
  std::optional<double> power_limit_at_open(int gpu) const;
  NvmlStatus set_fan(int gpu, int percent);  // all its fans
  NvmlStatus set_fan_auto(int gpu);          // gives them back to the driver
  // The percent a user set; absent where the driver controls the fans, or does not report it.
  std::optional<int> manual_fan_percent(int gpu) const;

  // The next critical Xid of any GPU that happens after the first call; kTimeout if none does in time, kNotSupported
  // where no GPU reports them.
  NvmlResult<XidEvent> next_xid(int timeout_ms);

  struct Impl;

 private:
  Nvml();
  std::unique_ptr<Impl> impl_;
};

// What an Xid means and what to do, from NVIDIA's catalog; for one we don't know, where to look it up.
struct XidMeaning {
  std::string meaning, todo;
  bool fatal = false;  // the GPU can't be used until it is reset
};
XidMeaning xid_meaning(uint64_t xid);

}  // namespace tandem
