// kernels/gpu/intrinsics.h -- launches of kernels that also compile for the CPU, where tests emulate them thread by
// thread (emulator.h stands in for CUDA's built-ins then).
#pragma once

#if defined(__CUDACC__)
#include "kernels/gpu/launch.h"
#define TANDEM_LAUNCH(name, kernel, grid, block, stream, ...) \
  do {                                                        \
    kernel<<<(grid), (block), 0, (stream)>>>(__VA_ARGS__);    \
    ::tandem::cuda::check_launch(name);                       \
  } while (false)
// The same with `bytes` of dynamic shared memory, which the kernel declares by one TANDEM_SHARED(type, name).
#define TANDEM_LAUNCH_WITH(bytes, name, kernel, grid, block, stream, ...)                       \
  do {                                                                                          \
    const auto chosen_kernel = kernel;                                                          \
    ::tandem::cuda::allow_shared_memory(reinterpret_cast<const void*>(chosen_kernel), (bytes)); \
    chosen_kernel<<<(grid), (block), (bytes), (stream)>>>(__VA_ARGS__);                         \
    ::tandem::cuda::check_launch(name);                                                         \
  } while (false)
#define TANDEM_SHARED(type, name)                              \
  extern __shared__ ::tandem::cuda::SharedUnit shared_units[]; \
  type& name = *reinterpret_cast<type*>(shared_units)
namespace tandem::cuda {
struct alignas(128) SharedUnit {
  unsigned char bytes[128];
};
}  // namespace tandem::cuda
#else
#include <cstddef>

#include "kernels/gpu/emulator.h"
#define TANDEM_LAUNCH(name, kernel, grid, block, stream, ...) \
  (static_cast<void>(stream), ::tandem::cuda_on_cpu::launch((grid), (block), [&] { kernel(__VA_ARGS__); }))
#define TANDEM_LAUNCH_WITH(bytes, name, kernel, grid, block, stream, ...) \
  TANDEM_LAUNCH(name, (kernel), grid, block, stream, __VA_ARGS__)
#define TANDEM_SHARED(type, name) static type name
namespace tandem::cuda {
inline constexpr int kThreads = 256;
inline unsigned grid_for(int64_t work_items) {
  return static_cast<unsigned>(std::clamp<int64_t>((work_items + kThreads - 1) / kThreads, 1, 4096));
}
inline int64_t first_item() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
inline int64_t item_stride() { return int64_t{gridDim.x} * blockDim.x; }
inline int blocks_per_sm(size_t) { return 32; }
inline int emulated_sm_count = 4;
inline int sm_count() { return emulated_sm_count; }
inline void prefetch_l2(const void*) {}
template <class T>
T load_no_allocate(const T* src) {
  return *src;
}
}  // namespace tandem::cuda
#endif
