// kernels/gpu/peer_sum.cu -- CUDA twin of cpu/peer_sum.cc.
#include <algorithm>
#include <cstddef>

#include "kernels/gpu/launch.h"
#include "kernels/gpu/peer_sum_block.h"

namespace tandem::cuda {
namespace {

constexpr int kPeerThreads = 512;

struct BlockThreads {
  static __device__ __forceinline__ int index() { return static_cast<int>(threadIdx.x); }
  static __device__ __forceinline__ int count() { return kPeerThreads; }
  static __device__ __forceinline__ void sync() { __syncthreads(); }
  static __device__ __forceinline__ peer::BlockMemory& shared() {
    __shared__ alignas(peer::BlockMemory) std::byte memory[sizeof(peer::BlockMemory)];
    return *reinterpret_cast<peer::BlockMemory*>(memory);
  }
};

// Words lie in host memory, which other GPUs and the CPU see too: system scope.
struct SystemWords {
  // By one instruction: left to itself the compiler makes four of it.
  static __device__ __forceinline__ void store(peer::Four* to, const peer::Four& four) {
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(four.x[0]), "f"(four.x[1]), "f"(four.x[2]),
                 "f"(four.x[3])
                 : "memory");
  }
  static __device__ __forceinline__ void store(float* to, float x) { *to = x; }
  static __device__ __forceinline__ void store(int64_t* to, int64_t x) { *to = x; }
  static __device__ __forceinline__ peer::Four load(const peer::Four* from) { return *from; }
  static __device__ __forceinline__ float load(const float* from) { return *from; }
  static __device__ __forceinline__ int64_t load(const int64_t* from) { return *from; }
  // After the block's barrier: the fence speaks for the stores of all its threads.
  static __device__ __forceinline__ void publish(uint64_t* word, uint64_t* near, uint64_t tag) {
    asm volatile("fence.acq_rel.sys;" ::: "memory");
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(tag) : "memory");
    if (near) asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(near), "l"(tag) : "memory");
  }
  static __device__ __forceinline__ uint64_t read(const uint64_t* word) {
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
  }
  static __device__ __forceinline__ void fence() { __threadfence_system(); }
  static __device__ __forceinline__ uint64_t now_ns() {
    uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
  }
  static __device__ __forceinline__ void reach(PeerPoint, int) {}
};

template <int kPending, int kPlaces, class How = peer::Added>
__global__ void __launch_bounds__(kPeerThreads) add_over_peers(const __grid_constant__ PeerSum sum) {
  peer::sum_block<BlockThreads, SystemWords, kPending, How, kPlaces>(sum, static_cast<int>(blockIdx.x));
}

// The least of all instances, beside which nothing else runs: a block waits for blocks of other GPUs, so all must be
// there at once. The SM count is that of this process's share under MPS.
template <class... Kernel>
int blocks_at_once(Kernel... kernels) {
  int least = kMostPeerBlocks;
  for (const auto kernel : {kernels...}) {
    int of_sm = 0;
    if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_sm, kernel, kPeerThreads, 0) != cudaSuccess) {
      cudaGetLastError();
      of_sm = 1;
    }
    least = std::min(least, of_sm * sm_count());
  }
  return std::max(least, 1);
}

}  // namespace

void queue_peer_sum(const PeerSum& sum, void* stream) {
  const Stream queue = static_cast<Stream>(stream);
  if (sum.bits)
    add_over_peers<2, 2, peer::Joined><<<sum.blocks, kPeerThreads, 0, queue>>>(sum);
  else if (sum.pending <= 4 && sum.partials <= 4)
    add_over_peers<4, 2><<<sum.blocks, kPeerThreads, 0, queue>>>(sum);
  else if (sum.pending <= 4)
    add_over_peers<4, 1><<<sum.blocks, kPeerThreads, 0, queue>>>(sum);
  else
    add_over_peers<kMostPeerPending, 1><<<sum.blocks, kPeerThreads, 0, queue>>>(sum);
  check_launch("peer_sum");
}

int most_peer_blocks() {
  return blocks_at_once(add_over_peers<2, 2, peer::Joined>, add_over_peers<4, 2>, add_over_peers<4, 1>,
                        add_over_peers<kMostPeerPending, 1>);
}

}  // namespace tandem::cuda
