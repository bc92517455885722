// kernels/gpu/launch.h -- grid sizes, launch errors and what else kernels share, for the .cu files.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/gpu/kernels.h"

namespace tandem::cuda {

inline constexpr int kThreads = 256;

// Grid-stride loops: enough blocks to fill the largest GPU, and no more than the work needs. What a thread computes
// does not depend on the grid, so bits do not either.
inline int grid_for(int64_t work_items) {
  return static_cast<int>(std::max<int64_t>(1, std::min<int64_t>((work_items + kThreads - 1) / kThreads, 4096)));
}

// For measurements (cuda_profile.cu): told of every launch, after it is queued.
inline void (*launch_watch)(const char* kernel) = nullptr;

inline void check_launch(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess)
    throw CudaError(static_cast<int>(error), std::string("CUDA kernel ") + kernel + " was refused: " +
                                                 cudaGetErrorName(error) + ", " + cudaGetErrorString(error));
  if (launch_watch) launch_watch(kernel);
}

// How many blocks with so much shared memory find room on a processor of this GPU.
inline int blocks_with_shared_memory(size_t bytes) {
  constexpr size_t kReserved = 1024;  // in each block
  int gpu = 0, all = 0, most = 0;
  if (cudaGetDevice(&gpu) != cudaSuccess ||
      cudaDeviceGetAttribute(&all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, gpu) != cudaSuccess ||
      cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu) != cudaSuccess)
    return 0;
  return bytes > static_cast<size_t>(most) ? 0 : static_cast<int>(static_cast<size_t>(all) / (bytes + kReserved));
}
// How many processors this GPU has.
inline int processors() {
  int gpu = 0, count = 0;
  if (cudaGetDevice(&gpu) != cudaSuccess ||
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, gpu) != cudaSuccess)
    return 0;
  return count;
}
// Which GPU a kernel's code is for here (90 is Hopper), and which one it was compiled for, before a driver compiles it
// again: a tenth of what __CUDA_ARCH__ was.
struct MadeFor {
  int gpu = 0, written = 0;
};
inline MadeFor made_for(const void* kernel) {
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) {
    cudaGetLastError();  // not that of a launch
    return {};
  }
  return {attributes.binaryVersion, attributes.ptxVersion};
}
// More of it than 48 kB must be allowed to a kernel, on each GPU, before it is launched.
inline void allow_shared_memory(const void* kernel, size_t bytes) {
  constexpr size_t kAlwaysAllowed = 48 * 1024;
  if (bytes <= kAlwaysAllowed) return;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error != cudaSuccess)
    throw CudaError(static_cast<int>(error), std::string("a kernel can't have ") + std::to_string(bytes) +
                                                 " bytes of shared memory: " + cudaGetErrorString(error));
}

// Asks for the line of memory around an address, for later: it comes into the cache that all processors share.
__device__ __forceinline__ void fetch_nearer(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// Numbers that this block will not read again: they take no place in its processor's cache. For what the kernel does
// not write.
__device__ __forceinline__ float4 read_once(const float4* from) {
  float4 x;
  asm volatile("ld.global.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "l"(from));
  return x;
}
__device__ __forceinline__ float2 read_once(const float2* from) {
  float2 x;
  asm volatile("ld.global.L1::no_allocate.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "l"(from));
  return x;
}
__device__ __forceinline__ uint4 read_once(const uint4* from) {
  uint4 x;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(from));
  return x;
}

__device__ __forceinline__ int64_t first_item() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ __forceinline__ int64_t item_stride() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// A parameter given with the launch, or one read on the device when the kernel runs.
template <typename T>
struct Given {
  T value;
  __device__ __forceinline__ const T& get() const { return value; }
};
template <typename T>
struct OnDevice {
  const T* pointer;
  __device__ __forceinline__ const T& get() const { return *pointer; }
};

// Four floats at a time where every pointer is 16-byte aligned; the result is the same either way.
inline bool aligned16() { return true; }
template <typename... Rest>
bool aligned16(const void* first, Rest... rest) {
  return reinterpret_cast<uintptr_t>(first) % 16 == 0 && aligned16(rest...);
}

}  // namespace tandem::cuda
