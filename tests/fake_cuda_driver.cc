// tests/fake_cuda_driver.cc -- libfake_cuda.so: the few functions of CUDA's driver library that list which GPUs are
// visible, over the same scripted machine as libfake_nvml.so. Honours CUDA_VISIBLE_DEVICES as CUDA does. Memory that
// processes share is the host's, and strict: it can't be touched before cuMemSetAccess, and every call of it may be
// refused by the script.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>

#include "fake_machine.h"

namespace {

struct Seen {
  int gpu = 0;
  const fake::Mig* part = nullptr;
};

constexpr int kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kNoDevice = 100;
bool g_initialized = false;

// A machine without CUDA_VISIBLE_DEVICES shows every GPU that is there; the list ends at the first that is not.
std::vector<Seen> visible() {
  fake::Machine* m = fake::machine();
  std::vector<Seen> all, chosen;
  if (!m) return all;
  for (size_t i = 0; i < m->fakes.size(); ++i) {
    if (m->lost(static_cast<int>(i), m->now())) continue;
    if (m->fakes[i].mig_on) {
      if (!m->fakes[i].mig.empty()) all.push_back({static_cast<int>(i), &m->fakes[i].mig.front()});
    } else {
      all.push_back({static_cast<int>(i), nullptr});
    }
  }
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!list) return all;
  std::string text = list;
  size_t start = 0;
  while (start < text.size()) {
    const size_t end = std::min(text.find(',', start), text.size());
    const std::string word = text.substr(start, end - start);
    start = end + 1;
    const Seen* found = nullptr;
    for (size_t i = 0; i < all.size(); ++i) {
      const std::string& uuid = all[i].part ? all[i].part->uuid : m->fakes[all[i].gpu].uuid;
      if (word == std::to_string(i) || (word.size() > 4 && uuid.starts_with(word))) found = &all[i];
    }
    if (!found) break;
    chosen.push_back(*found);
  }
  return chosen;
}

unsigned hex(char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; }

void put_uuid(const std::string& text, unsigned char* bytes) {
  int n = 0;
  std::string digits;
  for (const char c : text.substr(4)) {
    if (c != '-') digits += c;
  }
  for (size_t i = 0; i + 1 < digits.size() && n < 16; i += 2)
    bytes[n++] = static_cast<unsigned char>(hex(digits[i]) << 4 | hex(digits[i + 1]));
}

// Memory is the host's; a copy happens at once, and a stream's clock goes on by what it would take.
struct Stream {
  double seconds = 0;
};
struct Moment {
  double seconds = 0;
};
int g_current = 0;  // contexts are numbers of devices, plus one

double host_bytes_per_s(int device) {
  constexpr double kLane[] = {0, 0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9};
  fake::Machine* m = fake::machine();
  const int gpu = visible().at(device).gpu;
  const fake::FakeGpu& one = m->fakes[gpu];
  const double t = m->now();
  return 0.8 * kLane[static_cast<int>(m->value(gpu, t, "pcie_gen", one.pcie_gen))] *
         m->value(gpu, t, "pcie_width", one.pcie_width);
}

double peer_bytes_per_s(int from, int to) {
  const auto& fakes = fake::machine()->fakes;
  const fake::FakeGpu &a = fakes[visible().at(from).gpu], &b = fakes[visible().at(to).gpu];
  if (!a.peer || !b.peer) return std::min(host_bytes_per_s(from), host_bytes_per_s(to)) / 2;
  if (a.nvlinks > 0 && b.nvlinks > 0) return 0.9e6 * a.nvlinks * a.nvlink_mbps;
  return std::min(host_bytes_per_s(from), host_bytes_per_s(to));
}

int copy(void* to, const void* from, size_t bytes, void* stream, double bytes_per_s) {
  std::memcpy(to, from, bytes);
  if (stream) static_cast<Stream*>(stream)->seconds += static_cast<double>(bytes) / bytes_per_s;
  return kSuccess;
}
// ---- memory that processes share ----

struct SharedAddress {
  int fd = -1;  // of cuMemAlloc; -1: of cuMemMap
  size_t bytes = 0;
};
std::map<unsigned long long, SharedAddress>& addresses() {
  static std::map<unsigned long long, SharedAddress> all;
  return all;
}
int g_allocations = 0;  // handles that were not released
constexpr unsigned long long kFirstHandle = 1000;
constexpr size_t kGpuPage = 64 << 10;

std::optional<int> refused(const char* function) { return fake::machine()->refusal(function, visible().at(0).gpu); }

struct AllocationAsked {  // as in cuda.h
  int type, handle_types, location_type, device;
};

int device_of(void* context) { return static_cast<int>(reinterpret_cast<intptr_t>(context)) - 1; }
void* at(unsigned long long address) { return reinterpret_cast<void*>(address); }

}  // namespace

extern "C" {

int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = reinterpret_cast<void*>(static_cast<intptr_t>(device) + 1);
  return device < static_cast<int>(visible().size()) ? kSuccess : kInvalidValue;
}
int cuDevicePrimaryCtxRelease_v2(int) { return kSuccess; }
int cuCtxSetCurrent(void* context) {
  g_current = device_of(context);
  return kSuccess;
}
int cuCtxEnablePeerAccess(void*, unsigned) { return kSuccess; }
int cuStreamCreate(void** stream, unsigned) {
  *stream = new Stream;
  return kSuccess;
}
int cuStreamSynchronize(void*) { return kSuccess; }
int cuStreamDestroy_v2(void* stream) {
  delete static_cast<Stream*>(stream);
  return kSuccess;
}
int cuEventCreate(void** event, unsigned) {
  *event = new Moment;
  return kSuccess;
}
int cuEventRecord(void* event, void* stream) {
  static_cast<Moment*>(event)->seconds = static_cast<Stream*>(stream)->seconds;
  return kSuccess;
}
int cuEventElapsedTime(float* ms, void* begin, void* end) {
  *ms = static_cast<float>(1000 * (static_cast<Moment*>(end)->seconds - static_cast<Moment*>(begin)->seconds));
  return kSuccess;
}
int cuEventDestroy_v2(void* event) {
  delete static_cast<Moment*>(event);
  return kSuccess;
}
int cuMemAlloc_v2(unsigned long long* address, size_t bytes) {
  if (fake::machine()->refusal("cuMemAlloc_v2", visible().at(g_current).gpu)) return kOutOfMemory;
  const int fd = memfd_create("fake-cuda", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) return kOutOfMemory;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return kOutOfMemory;
  *address = reinterpret_cast<unsigned long long>(memory);
  addresses()[*address] = {fd, bytes};
  return kSuccess;
}
int cuMemFree_v2(unsigned long long address) {
  const auto found = addresses().find(address);
  if (found == addresses().end()) return kInvalidValue;
  munmap(at(address), found->second.bytes);
  close(found->second.fd);
  addresses().erase(found);
  return kSuccess;
}

int cuMemGetAllocationGranularity(size_t* bytes, const void*, int) {
  *bytes = kGpuPage;
  return refused("cuMemGetAllocationGranularity").value_or(kSuccess);
}
int cuMemCreate(unsigned long long* handle, size_t bytes, const AllocationAsked* asked, unsigned long long) {
  if (const auto code = refused("cuMemCreate")) return *code;
  const bool right = asked->type == 1 && asked->handle_types == 1 && asked->location_type == 1 &&
                     asked->device < static_cast<int>(visible().size()) && bytes % kGpuPage == 0;
  if (!right) return kInvalidValue;
  const int fd = memfd_create("fake-cuda", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) return kOutOfMemory;
  *handle = kFirstHandle + static_cast<unsigned long long>(fd);
  ++g_allocations;
  return kSuccess;
}
int cuMemRelease(unsigned long long handle) {
  if (close(static_cast<int>(handle - kFirstHandle)) != 0) return kInvalidValue;
  --g_allocations;
  return kSuccess;
}
int cuMemExportToShareableHandle(void* fd, unsigned long long handle, int type, unsigned long long) {
  if (const auto code = refused("cuMemExportToShareableHandle")) return *code;
  if (type != 1) return kInvalidValue;
  *static_cast<int*>(fd) = dup(static_cast<int>(handle - kFirstHandle));
  return kSuccess;
}
int cuMemImportFromShareableHandle(unsigned long long* handle, void* fd, int type) {
  if (const auto code = refused("cuMemImportFromShareableHandle")) return *code;
  const int copy = dup(static_cast<int>(reinterpret_cast<intptr_t>(fd)));
  if (type != 1 || copy < 0) return kInvalidValue;
  *handle = kFirstHandle + static_cast<unsigned long long>(copy);
  ++g_allocations;
  return kSuccess;
}
int cuMemAddressReserve(unsigned long long* address, size_t bytes, size_t, unsigned long long, unsigned long long) {
  if (const auto code = refused("cuMemAddressReserve")) return *code;
  void* const memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return kOutOfMemory;
  *address = reinterpret_cast<unsigned long long>(memory);
  return kSuccess;
}
int cuMemMap(unsigned long long address, size_t bytes, size_t, unsigned long long handle, unsigned long long) {
  if (const auto code = refused("cuMemMap")) return *code;
  const int fd = static_cast<int>(handle - kFirstHandle);
  if (mmap(at(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) return kInvalidValue;
  addresses()[address] = {-1, bytes};
  return kSuccess;
}
int cuMemSetAccess(unsigned long long address, size_t bytes, const int* asked, size_t count) {
  if (const auto code = refused("cuMemSetAccess")) return *code;
  if (count != 1 || asked[0] != 1 || asked[1] >= static_cast<int>(visible().size()) || asked[2] != 3)
    return kInvalidValue;
  return mprotect(at(address), bytes, PROT_READ | PROT_WRITE) == 0 ? kSuccess : kInvalidValue;
}
int cuMemUnmap(unsigned long long address, size_t bytes) {
  if (addresses().erase(address) == 0) return kInvalidValue;
  mmap(at(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  return kSuccess;
}
int cuMemAddressFree(unsigned long long address, size_t bytes) {
  return !addresses().contains(address) && munmap(at(address), bytes) == 0 ? kSuccess : kInvalidValue;
}
// For tests: what is still allocated or mapped.
int fake_cuda_left() { return g_allocations + static_cast<int>(addresses().size()); }
int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  *memory = std::malloc(bytes);
  return kSuccess;
}
int cuMemFreeHost(void* memory) {
  std::free(memory);
  return kSuccess;
}
// Refused with 0: it has another address there.
int cuMemHostGetDevicePointer_v2(unsigned long long* address, void* host, unsigned) {
  if (const auto code = refused("cuMemHostGetDevicePointer_v2")) return *code;
  *address = reinterpret_cast<unsigned long long>(host);
  return kSuccess;
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t bytes, void* stream) {
  return copy(at(to), from, bytes, stream, host_bytes_per_s(g_current));
}
int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, size_t bytes, void* stream) {
  return copy(to, at(from), bytes, stream, host_bytes_per_s(g_current));
}
int cuMemcpyPeerAsync(unsigned long long to, void* to_context, unsigned long long from, void* from_context,
                      size_t bytes, void* stream) {
  return copy(at(to), at(from), bytes, stream, peer_bytes_per_s(device_of(from_context), device_of(to_context)));
}

int cuInit(unsigned) {
  fake::Machine* m = fake::machine();
  if (!m) return kNoDevice;
  if (m->cuda_init_code != 0) return m->cuda_init_code;
  if (visible().empty()) return kNoDevice;
  g_initialized = true;
  return kSuccess;
}
int cuDriverGetVersion(int* version) {
  fake::Machine* m = fake::machine();
  *version = m ? m->cuda_version : 0;
  return kSuccess;
}
int cuDeviceGetCount(int* count) {
  if (!g_initialized) return kNotInitialized;
  *count = static_cast<int>(visible().size());
  return kSuccess;
}
int cuDeviceGet(int* device, int ordinal) {
  if (!g_initialized) return kNotInitialized;
  *device = ordinal;
  return ordinal < static_cast<int>(visible().size()) ? kSuccess : kInvalidValue;
}
int cuDeviceGetName(char* name, int length, int device) {
  const std::vector<Seen> seen = visible();
  if (device >= static_cast<int>(seen.size())) return kInvalidValue;
  std::strncpy(name, fake::machine()->fakes[seen[device].gpu].name.c_str(), length - 1);
  return kSuccess;
}
int cuDeviceGetUuid(void* uuid, int device) {
  const std::vector<Seen> seen = visible();
  if (device >= static_cast<int>(seen.size())) return kInvalidValue;
  put_uuid(fake::machine()->fakes[seen[device].gpu].uuid, static_cast<unsigned char*>(uuid));
  return kSuccess;
}
int cuDeviceGetUuid_v2(void* uuid, int device) {
  const std::vector<Seen> seen = visible();
  if (device >= static_cast<int>(seen.size())) return kInvalidValue;
  const Seen& one = seen[device];
  put_uuid(one.part ? one.part->uuid : fake::machine()->fakes[one.gpu].uuid, static_cast<unsigned char*>(uuid));
  return kSuccess;
}
int cuDeviceCanAccessPeer(int* can, int a, int b) {
  const std::vector<Seen> seen = visible();
  if (a >= static_cast<int>(seen.size()) || b >= static_cast<int>(seen.size())) return kInvalidValue;
  const auto& fakes = fake::machine()->fakes;
  *can = a != b && fakes[seen[a].gpu].peer && fakes[seen[b].gpu].peer;
  return kSuccess;
}
int cuGetErrorName(int code, const char** name) {
  *name = code == kNoDevice      ? "CUDA_ERROR_NO_DEVICE"
          : code == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY"
          : code == 803          ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
          : code == 999          ? "CUDA_ERROR_UNKNOWN"
                                 : "CUDA_ERROR";
  return kSuccess;
}
int cuGetErrorString(int code, const char** words) {
  *words = code == kNoDevice ? "no CUDA-capable device is detected"
           : code == 803     ? "system has unsupported display driver / cuda driver combination"
                             : "unknown error";
  return kSuccess;
}

}  // extern "C"
