#include "hardware/cuda_driver.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace tandem {
namespace {

struct Uuid {
  unsigned char bytes[16];
};

struct Functions {
  int (*init)(unsigned) = nullptr;
  int (*version)(int*) = nullptr;
  int (*count)(int*) = nullptr;
  int (*get)(int*, int) = nullptr;
  int (*name)(char*, int, int) = nullptr;
  int (*uuid)(Uuid*, int) = nullptr;
  int (*uuid_v2)(Uuid*, int) = nullptr;
  int (*can_access)(int*, int, int) = nullptr;
  int (*error_name)(int, const char**) = nullptr;
  int (*error_string)(int, const char**) = nullptr;
};

template <class F>
void find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
}

std::string uuid_text(const Uuid& uuid, bool part) {
  std::string text = part ? "MIG-" : "GPU-";
  char two[3];
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    std::snprintf(two, sizeof two, "%02x", uuid.bytes[i]);
    text += two;
  }
  return text;
}

Functions functions_of(void* library) {
  Functions cuda;
  find(library, "cuInit", cuda.init);
  find(library, "cuDriverGetVersion", cuda.version);
  find(library, "cuDeviceGetCount", cuda.count);
  find(library, "cuDeviceGet", cuda.get);
  find(library, "cuDeviceGetName", cuda.name);
  find(library, "cuDeviceGetUuid", cuda.uuid);
  find(library, "cuDeviceGetUuid_v2", cuda.uuid_v2);
  find(library, "cuDeviceCanAccessPeer", cuda.can_access);
  find(library, "cuGetErrorName", cuda.error_name);
  find(library, "cuGetErrorString", cuda.error_string);
  return cuda;
}

CudaDevice device_of(const Functions& cuda, int handle) {
  CudaDevice device;
  Uuid uuid{}, whole{};
  // The second version gives a MIG instance its own uuid; the first gives the whole GPU's.
  const bool known = cuda.uuid_v2 ? cuda.uuid_v2(&uuid, handle) == 0 : cuda.uuid && cuda.uuid(&uuid, handle) == 0;
  const bool part = known && cuda.uuid_v2 && cuda.uuid && cuda.uuid(&whole, handle) == 0 &&
                    uuid_text(whole, false) != uuid_text(uuid, false);
  if (known) device.uuid = uuid_text(uuid, part);
  char name[128] = "";
  if (cuda.name && cuda.name(name, sizeof name, handle) == 0 && *name) device.name = name;
  return device;
}

}  // namespace

CudaDriver ask_cuda_driver() {
  CudaDriver driver;
  const char* other = std::getenv("TANDEM_LIBCUDA");
  // Never closed: CUDA's library does not survive that.
  void* library = dlopen(other && *other ? other : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* words = dlerror();
    driver.trouble = words ? words : "libcuda.so.1 cannot be loaded";
    return driver;
  }
  driver.library_found = true;
  const Functions cuda = functions_of(library);
  if (!cuda.init || !cuda.count) {
    driver.init_code = -1;
    driver.trouble = "the library has no cuInit: it is no CUDA driver";
    return driver;
  }
  int version = 0;
  if (cuda.version && cuda.version(&version) == 0) driver.version = version;
  driver.init_code = cuda.init(0);
  if (driver.init_code != 0) {
    const char *name = nullptr, *words = nullptr;
    if (cuda.error_name) cuda.error_name(driver.init_code, &name);
    if (cuda.error_string) cuda.error_string(driver.init_code, &words);
    driver.trouble = name ? name : "CUDA error " + std::to_string(driver.init_code);
    if (words) driver.trouble += std::string(": ") + words;
    return driver;
  }
  int count = 0;
  if (cuda.count(&count) != 0) count = 0;
  std::vector<int> handles;
  for (int i = 0; i < count; ++i) {
    int handle = i;
    if (cuda.get && cuda.get(&handle, i) != 0) continue;
    handles.push_back(handle);
    driver.devices.push_back(device_of(cuda, handle));
  }
  driver.peers.resize(handles.size());
  for (size_t a = 0; a < handles.size(); ++a) {
    for (size_t b = 0; b < handles.size(); ++b) {
      int can = 0;
      const bool known = a != b && cuda.can_access && cuda.can_access(&can, handles[a], handles[b]) == 0;
      driver.peers[a].push_back(known ? std::optional<bool>(can != 0) : std::nullopt);
    }
  }
  return driver;
}

}  // namespace tandem
