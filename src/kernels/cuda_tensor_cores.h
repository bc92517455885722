// kernels/cuda_tensor_cores.h -- products of a warp on tensor cores, and copies to shared memory that are made
// meanwhile. Where a card has both, TANDEM_TENSOR_CORES is defined. TANDEM_PLAYED_TENSOR_CORES plays them on the CPU,
// for tests: a copy arrives as late as it may, so that whoever does not wait for it reads what was there before.
#pragma once

#include <cstdint>

#include "kernels/cuda_portable.h"

#if defined(TANDEM_PLAYED_TENSOR_CORES)
#define TANDEM_TENSOR_CORES
#include <bit>
#include <map>
#include <vector>

namespace tandem::cuda {

inline uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
inline float float_of(uint32_t x) { return std::bit_cast<float>(x); }

// c += a * b of 16 x 8 numbers, eight deep; the lanes hold them as the instruction below wants it.
inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  static uint32_t left[32][32][4], right[32][32][2];  // [warp][lane]
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = 0; i < 4; ++i) left[warp][lane][i] = a[i];
  right[warp][lane][0] = b0;
  right[warp][lane][1] = b1;
  __syncwarp();
  const auto tf32 = [](uint32_t x) { return static_cast<double>(float_of(x & 0xFFFFE000u)); };
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    double sum = c[i];
    for (int k = 0; k < 8; ++k)
      sum += tf32(left[warp][row % 8 * 4 + k % 4][row / 8 + k / 4 * 2]) * tf32(right[warp][column * 4 + k % 4][k / 4]);
    c[i] = static_cast<float>(sum);
  }
  __syncwarp();
}

struct CopiesAhead {
  struct Copy {
    float* to;
    float numbers[4];
  };
  std::vector<std::vector<Copy>> stages;
  std::vector<Copy> open;
};
inline std::map<int, CopiesAhead> copies_ahead;  // of each thread; empty where a block has waited for all
inline bool copies_come_at_once = false;         // as early as they may: whoever still reads what was there sees it

inline void copy_ahead(float* to, const float* from) {
  if (copies_come_at_once)
    for (int i = 0; i < 4; ++i) to[i] = from[i];
  copies_ahead[static_cast<int>(threadIdx.x)].open.push_back({to, {from[0], from[1], from[2], from[3]}});
}
inline void end_of_stage() {
  CopiesAhead& mine = copies_ahead[static_cast<int>(threadIdx.x)];
  mine.stages.push_back(std::move(mine.open));
  mine.open.clear();
}
template <int kMayBeOpen>
void wait_for_stage() {
  CopiesAhead& mine = copies_ahead[static_cast<int>(threadIdx.x)];
  while (static_cast<int>(mine.stages.size()) > kMayBeOpen) {
    for (const auto& copy : mine.stages.front())
      for (int i = 0; i < 4; ++i) copy.to[i] = copy.numbers[i];
    mine.stages.erase(mine.stages.begin());
  }
}

}  // namespace tandem::cuda

#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define TANDEM_TENSOR_CORES

namespace tandem::cuda {

__device__ inline uint32_t bits_of(float x) { return __float_as_uint(x); }
__device__ inline float float_of(uint32_t x) { return __uint_as_float(x); }

// c += a * b of 16 x 8 numbers, eight deep, in tf32 (the upper 19 bits count), by a warp.
__device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Sixteen bytes to shared memory; a thread's copies since its last end_of_stage() are a stage.
__device__ inline void copy_ahead(float* to, const float* from) {
  const auto there = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(there), "l"(from) : "memory");
}
__device__ inline void end_of_stage() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until no more than so many of this thread's stages are still on their way.
template <int kMayBeOpen>
__device__ void wait_for_stage() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kMayBeOpen) : "memory");
}

}  // namespace tandem::cuda
#endif
