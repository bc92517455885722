// hardware/nvml_impl.h -- NVML's functions as found in the library, and how they are asked; for nvml*.cc alone.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "hardware/nvml.h"
#include "hardware/nvml_api.h"

namespace tandem {

struct Nvml::Impl {
#define TANDEM_DECLARE(name, arguments) nvml::Ret(*name) arguments = nullptr;
  TANDEM_NVML_FUNCTIONS(TANDEM_DECLARE)
#undef TANDEM_DECLARE
  const char* (*nvmlErrorString)(nvml::Ret) = nullptr;

  void* library = nullptr;
  bool initialized = false;
  NvmlStatus status;
  std::vector<nvml::Device> devices;  // null: the driver gives no handle for it
  std::vector<NvmlStatus> device_status;
  std::vector<std::optional<double>> limit_at_open;
  std::mutex events_mutex;
  nvml::EventSet events = nullptr;

  NvmlStatus word(nvml::Ret code) const;
  NvmlStatus device(int gpu, nvml::Device& handle) const;
  void find_devices();
  NvmlStatus silence(nvml::Device handle) const;
  std::optional<std::string> bus_id(nvml::Device handle) const;
  std::vector<NvLinkPeer> nvlink_peers(nvml::Device handle) const;
  NvmlStatus watch_events();

  // The value that a call writes into its last argument, if the call is there and succeeds.
  template <class T, class F, class... A>
  std::optional<T> ask(F function, A... arguments) const {
    T value{};
    if (!function || function(arguments..., &value) != nvml::kSuccess) return std::nullopt;
    return value;
  }
  template <class F, class... A>
  std::optional<int> number(F function, A... arguments) const {
    const auto value = ask<unsigned>(function, arguments...);
    return value ? std::optional<int>(static_cast<int>(*value)) : std::nullopt;
  }
  template <class F, class... A>
  std::optional<double> thousandths(F function, A... arguments) const {
    const auto value = ask<unsigned>(function, arguments...);
    return value ? std::optional<double>(*value / 1000.0) : std::nullopt;
  }
  template <class F>
  std::optional<std::string> text(F function, nvml::Device handle) const {
    char buffer[nvml::kUuidBuffer] = "";
    if (!function || function(handle, buffer, sizeof buffer) != nvml::kSuccess || !*buffer) return std::nullopt;
    return buffer;
  }
  template <class F>
  std::optional<bool> flag(F function, nvml::Device handle) const {
    const auto value = ask<unsigned>(function, handle);
    return value ? std::optional<bool>(*value != 0) : std::nullopt;
  }
};

}  // namespace tandem
