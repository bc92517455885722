#include "config/gpu_ids.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>

#include "config/gpus_and_driver.h"
#include "hardware/nvml.h"

namespace tandem {
namespace {

// The few calls of nvml.h that are needed here; 0 is success.
struct Calls {
  using Handle = void*;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*at)(unsigned, Handle*) = nullptr;
  int (*uuid)(Handle, char*, unsigned) = nullptr;
  int (*name)(Handle, char*, unsigned) = nullptr;
  int (*driver)(char*, unsigned) = nullptr;  // the last two may be missing
  int (*cuda)(int*) = nullptr;
};

template <class F>
bool find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

DriverVersions versions_of(const Calls& nvml) {
  DriverVersions found;
  char driver[96] = "";
  int cuda = 0;
  if (nvml.driver && nvml.driver(driver, sizeof driver) == 0 && *driver) found.driver = driver;
  if (nvml.cuda && nvml.cuda(&cuda) == 0 && cuda > 0) found.cuda = cuda;
  return found;
}

}  // namespace

std::vector<GpuId> all_gpu_ids() { return gpus_and_driver().gpus; }

GpusAndDriver gpus_and_driver() {
  GpusAndDriver seen;
  void* library = dlopen(Nvml::library_name().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return seen;
  Calls nvml;
  find(library, "nvmlSystemGetDriverVersion", nvml.driver);
  find(library, "nvmlSystemGetCudaDriverVersion_v2", nvml.cuda);
  const bool whole = find(library, "nvmlInit_v2", nvml.init) && find(library, "nvmlShutdown", nvml.shutdown) &&
                     find(library, "nvmlDeviceGetCount_v2", nvml.count) &&
                     find(library, "nvmlDeviceGetHandleByIndex_v2", nvml.at) &&
                     find(library, "nvmlDeviceGetUUID", nvml.uuid) && find(library, "nvmlDeviceGetName", nvml.name);
  if (whole && nvml.init() == 0) {
    unsigned count = 0;
    if (nvml.count(&count) != 0) count = 0;
    for (unsigned i = 0; i < count; ++i) {
      Calls::Handle handle = nullptr;
      char uuid[96] = "", name[96] = "";
      if (nvml.at(i, &handle) != 0 || nvml.uuid(handle, uuid, sizeof uuid) != 0) continue;
      nvml.name(handle, name, sizeof name);
      seen.gpus.push_back({uuid, name});
    }
    seen.driver = versions_of(nvml);
    nvml.shutdown();
  }
  dlclose(library);
  return seen;
}

std::vector<GpuId> visible_gpu_ids(const std::vector<GpuId>& all, const char* visible_devices) {
  if (!visible_devices) return all;
  std::vector<GpuId> chosen;
  std::string_view rest = visible_devices;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    std::string_view word = rest.substr(0, comma);
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
    while (!word.empty() && word.front() == ' ') word.remove_prefix(1);
    while (!word.empty() && word.back() == ' ') word.remove_suffix(1);
    int number = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error == std::errc() && end == word.data() + word.size()) {
      if (number < 0 || number >= static_cast<int>(all.size())) break;
      chosen.push_back(all[number]);
      continue;
    }
    if (word.starts_with("MIG-")) {  // a part of a GPU: NVML's list has whole ones
      chosen.push_back({std::string(word), "a MIG device"});
      continue;
    }
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const GpuId& gpu) { return gpu.uuid.starts_with(word); });
    if (word.empty() || found == all.end()) break;
    chosen.push_back(*found);
  }
  return chosen;
}

}  // namespace tandem
