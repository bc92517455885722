// kernels/gpu/launch.h -- grid sizes, launch errors and what else kernels share, for the .cu files.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/gpu/kernels.h"

namespace tandem::cuda {

inline constexpr int kThreads = 256;  // of a block, unless a kernel says otherwise

// Grid-stride loops: enough blocks to fill the largest GPU, and no more than the work needs. What a thread computes
// does not depend on the grid, so bits do not either.
inline int grid_for(int64_t work_items) {
  return static_cast<int>(std::max<int64_t>(1, std::min<int64_t>((work_items + kThreads - 1) / kThreads, 4096)));
}

// For measurements (profile.cu): called after every launch is queued.
inline void (*launch_watch)(const char* kernel) = nullptr;

inline void check_launch(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess)
    throw CudaError(static_cast<int>(error), std::string("CUDA kernel ") + kernel + " was refused: " +
                                                 cudaGetErrorName(error) + ", " + cudaGetErrorString(error));
  if (launch_watch) launch_watch(kernel);
}

// How many blocks fit on an SM by their shared memory, `bytes` each; 0: none, a block may not have so much.
inline int blocks_per_sm(size_t bytes) {
  constexpr size_t kReserved = 1024;  // CUDA's own, in each block
  int gpu = 0, max_per_sm = 0, max_per_block = 0;
  if (cudaGetDevice(&gpu) != cudaSuccess ||
      cudaDeviceGetAttribute(&max_per_sm, cudaDevAttrMaxSharedMemoryPerMultiprocessor, gpu) != cudaSuccess ||
      cudaDeviceGetAttribute(&max_per_block, cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu) != cudaSuccess)
    return 0;
  return bytes > static_cast<size_t>(max_per_block)
             ? 0
             : static_cast<int>(static_cast<size_t>(max_per_sm) / (bytes + kReserved));
}
// SMs of this GPU.
inline int sm_count() {
  int gpu = 0, count = 0;
  if (cudaGetDevice(&gpu) != cudaSuccess ||
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, gpu) != cudaSuccess)
    return 0;
  return count;
}
// The architecture of a kernel's code here (90: Hopper), and of the PTX it comes from, where the driver compiled that.
struct KernelArch {
  int binary = 0, ptx = 0;
};
inline KernelArch arch_of(const void* kernel) {
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) {
    cudaGetLastError();  // cleared, or the next launch would report it
    return {};
  }
  return {attributes.binaryVersion, attributes.ptxVersion};
}
// Above 48 kB of dynamic shared memory a kernel must opt in before its launch.
inline void allow_shared_memory(const void* kernel, size_t bytes) {
  constexpr size_t kAlwaysAllowed = 48 * 1024;
  if (bytes <= kAlwaysAllowed) return;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error != cudaSuccess)
    throw CudaError(static_cast<int>(error), std::string("a kernel can't have ") + std::to_string(bytes) +
                                                 " bytes of shared memory: " + cudaGetErrorString(error));
}

// Prefetches a cache line into L2.
__device__ __forceinline__ void prefetch_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// Loads that bypass L1 (no-allocate): for data that the block reads once and the kernel does not write.
__device__ __forceinline__ float4 load_no_allocate(const float4* src) {
  float4 x;
  asm volatile("ld.global.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "l"(src));
  return x;
}
__device__ __forceinline__ float2 load_no_allocate(const float2* src) {
  float2 x;
  asm volatile("ld.global.L1::no_allocate.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "l"(src));
  return x;
}
__device__ __forceinline__ uint4 load_no_allocate(const uint4* src) {
  uint4 x;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(src));
  return x;
}

// Grid-stride loop: the first index of this thread, and the step to its next one.
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
