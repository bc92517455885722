// kernels/gpu/emulator.h -- runs kernels on the CPU, for tests on machines without a GPU: the threads of a block are
// fibers that switch at __syncthreads(), __syncwarp() and shuffles; blocks run one after the other.
//
// Kernels may use only what is here. The arithmetic is the GPU's (-ffp-contract=off, explicit fmaf), so results are
// equal to the bit.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __shared__ static

struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
using std::max;
using std::min;
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

// longjmp() itself: a build with _FORTIFY_SOURCE has another one, which takes a jump to a fiber's stack for a mistake.
extern "C" [[noreturn]] void tandem_plain_jump(jmp_buf, int) __asm__("_longjmp");

namespace tandem::cuda_on_cpu {

enum class Waits { kNothing, kShuffle, kBlock, kDone };

// A context starts a fiber; after that, longjmp switches. It leaves the signal mask alone, which would cost two system
// calls at every switch.
struct Fiber {
  ucontext_t context;
  jmp_buf resume_point;
  bool begun = false;
  std::vector<char> stack;
  Waits waits = Waits::kNothing;
  uint64_t shuffle_value = 0;
};

struct Block {
  std::vector<std::unique_ptr<Fiber>> fibers;
  jmp_buf scheduler;
  int current = 0;  // the thread that runs
  std::function<void()> body;
};
inline Block block;
inline bool last_thread_first = false;  // schedules a block's threads in reverse: results must not change
inline dim3 thread_index, block_index, block_size, grid_size;

inline void wait(Waits what) {
  Fiber& fiber = *block.fibers[block.current];
  fiber.waits = what;
  if (_setjmp(fiber.resume_point) == 0) tandem_plain_jump(block.scheduler, 1);
}
inline void enter() {
  block.body();
  wait(Waits::kDone);
}

// Runs the fiber until it waits or is done.
inline void run_until_wait(Fiber& fiber) {
  if (_setjmp(block.scheduler) != 0) return;
  if (fiber.begun) tandem_plain_jump(fiber.resume_point, 1);
  fiber.begun = true;
  setcontext(&fiber.context);
  throw std::runtime_error("a fiber can't begin: setcontext() came back");
}

inline void run_block(int threads) {
  constexpr size_t kStack = 128 << 10;
  while (static_cast<int>(block.fibers.size()) < threads) {
    block.fibers.push_back(std::make_unique<Fiber>());
    block.fibers.back()->stack.resize(kStack);
  }
  for (int i = 0; i < threads; ++i) {
    Fiber& fiber = *block.fibers[i];
    getcontext(&fiber.context);
    fiber.context.uc_stack = {.ss_sp = fiber.stack.data(), .ss_flags = 0, .ss_size = fiber.stack.size()};
    fiber.context.uc_link = nullptr;
    fiber.waits = Waits::kNothing;
    fiber.begun = false;
    makecontext(&fiber.context, enter, 0);
  }
  bool moved = false;
  const auto all = [&](int first, int last, Waits what) {
    bool any = false;
    for (int i = first; i < last; ++i) {
      if (block.fibers[i]->waits == Waits::kDone) continue;
      if (block.fibers[i]->waits != what) return false;
      any = true;
    }
    return any;
  };
  const auto release = [&](int first, int last) {
    for (int i = first; i < last; ++i)
      if (block.fibers[i]->waits != Waits::kDone) block.fibers[i]->waits = Waits::kNothing;
    moved = true;
  };
  while (true) {
    moved = false;
    // A warp runs to its next barrier of the block before the next warp moves: races between warps show.
    for (int w = 0; w < threads; w += 32) {
      const int warp = last_thread_first ? (threads - 1) / 32 * 32 - w : w, last = std::min(threads, warp + 32);
      do {
        for (int k = warp; k < last; ++k) {
          const int i = last_thread_first ? warp + last - 1 - k : k;
          Fiber& fiber = *block.fibers[i];
          if (fiber.waits != Waits::kNothing) continue;
          moved = true;
          block.current = i;
          thread_index = dim3(static_cast<unsigned>(i) % block_size.x, static_cast<unsigned>(i) / block_size.x, 0);
          run_until_wait(fiber);
        }
        if (!all(warp, last, Waits::kShuffle)) break;
        release(warp, last);
      } while (true);
    }
    if (all(0, threads, Waits::kBlock)) release(0, threads);
    bool over = true;
    for (int i = 0; i < threads; ++i) over = over && block.fibers[i]->waits == Waits::kDone;
    if (over) return;
    if (!moved) throw std::logic_error("deadlock: threads of a block wait for each other");
  }
}

// One at a time, whichever thread asks: what stands in for the GPU is the process's.
inline void launch(dim3 grid, dim3 threads, std::function<void()> body) {
  static std::mutex one;
  const std::lock_guard lock(one);
  block.body = std::move(body);
  grid_size = grid;
  block_size = threads;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        block_index = dim3(x, y, z);
        run_block(static_cast<int>(threads.x * threads.y));
      }
}

template <class T>
T exchange(T value, int lane) {
  static_assert(sizeof(T) <= 8);
  Fiber& fiber = *block.fibers[block.current];
  const int thread = block.current;
  fiber.shuffle_value = 0;
  std::memcpy(&fiber.shuffle_value, &value, sizeof(T));
  wait(Waits::kShuffle);
  T taken;
  std::memcpy(&taken, &block.fibers[thread / 32 * 32 + lane]->shuffle_value, sizeof(T));
  wait(Waits::kShuffle);
  return taken;
}

}  // namespace tandem::cuda_on_cpu

#define threadIdx (::tandem::cuda_on_cpu::thread_index)
#define blockIdx (::tandem::cuda_on_cpu::block_index)
#define blockDim (::tandem::cuda_on_cpu::block_size)
#define gridDim (::tandem::cuda_on_cpu::grid_size)

inline void __syncthreads() { ::tandem::cuda_on_cpu::wait(::tandem::cuda_on_cpu::Waits::kBlock); }
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return ::tandem::cuda_on_cpu::exchange(value, static_cast<int>(threadIdx.x % 32) ^ mask);
}
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  return ::tandem::cuda_on_cpu::exchange(value, lane);
}
template <class T>
T __shfl_up_sync(unsigned, T value, int delta) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return ::tandem::cuda_on_cpu::exchange(value, lane >= delta ? lane - delta : lane);
}
inline unsigned __ballot_sync(unsigned, bool yes) {
  using namespace ::tandem::cuda_on_cpu;
  const int first = block.current / 32 * 32;
  block.fibers[block.current]->shuffle_value = yes;
  wait(Waits::kShuffle);
  unsigned all = 0;
  for (int lane = 0; lane < 32; ++lane) all |= static_cast<unsigned>(block.fibers[first + lane]->shuffle_value) << lane;
  wait(Waits::kShuffle);
  return all;
}
inline int __ffs(int x) { return __builtin_ffs(x); }
inline void __syncwarp() { ::tandem::cuda_on_cpu::wait(::tandem::cuda_on_cpu::Waits::kShuffle); }
inline unsigned long long atomicAdd(unsigned long long* address, unsigned long long value) {
  const unsigned long long old = *address;
  *address += value;
  return old;
}
