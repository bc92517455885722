// hardware/cuda_calls.h -- calls of CUDA's driver library by name; it is opened at run time. TANDEM_LIBCUDA names
// another library than libcuda.so.1 (tests do).
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace tandem::cuda_calls {

using Handle = void*;
using Address = unsigned long long;

// What went wrong, as the library says it.
struct CudaTrouble : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Library {
 public:
  explicit Library(const char* name) : handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {  // never closed: see below
    if (!handle_) {
      const char* words = dlerror();
      throw CudaTrouble(words ? words : "it cannot be loaded");
    }
  }
  template <class F>
  F* find(const char* name) const {
    void* const found = dlsym(handle_, name);
    if (!found) throw CudaTrouble(std::string("the library has no ") + name);
    return reinterpret_cast<F*>(found);
  }

 private:
  void* handle_;  // CUDA's library does not survive being closed
};

class Cuda {
 public:
  Cuda() : library_(name()) {
    call("cuInit", 0u);
    call("cuDeviceGetCount", &count_);
  }
  int devices() const { return count_; }

  template <class... A>
  int try_call(const char* name, A... arguments) const {
    return library_.find<int(A...)>(name)(arguments...);
  }
  template <class... A>
  void call(const char* name, A... arguments) const {
    const int code = try_call(name, arguments...);
    if (code == 0) return;
    const char* words = nullptr;
    try_call("cuGetErrorName", code, &words);
    throw CudaTrouble(std::string(name) + ": " + (words ? words : "CUDA error " + std::to_string(code)));
  }

 private:
  static const char* name() {
    const char* other = std::getenv("TANDEM_LIBCUDA");
    return other && *other ? other : "libcuda.so.1";
  }
  Library library_;
  int count_ = 0;
};

}  // namespace tandem::cuda_calls
