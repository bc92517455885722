#include "kernels/peer_sum.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "kernels/gpu/peer_sum_block.h"

namespace tandem {

std::function<void(PeerPoint, int block)> at_peer_points;

namespace {

struct OneThread {
  static int index() { return 0; }
  static int count() { return 1; }
  static void sync() {}
  static peer::BlockMemory& shared() {
    static thread_local peer::BlockMemory all;
    return all;
  }
};

struct CpuWords {
  static void store(peer::Four* to, const peer::Four& four) { *to = four; }
  static void store(float* to, float x) { *to = x; }
  static void store(int64_t* to, int64_t x) { *to = x; }
  static peer::Four load(const peer::Four* from) { return *from; }
  static float load(const float* from) { return *from; }
  static int64_t load(const int64_t* from) { return *from; }
  static void publish(uint64_t* word, uint64_t* near, uint64_t tag) {
    std::atomic_ref(*word).store(tag, std::memory_order_release);
    if (near) std::atomic_ref(*near).store(tag, std::memory_order_release);
  }
  static uint64_t read(const uint64_t* word) {
    return std::atomic_ref(*const_cast<uint64_t*>(word)).load(std::memory_order_acquire);
  }
  static void fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
  static uint64_t now_ns() {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count());
  }
  static void reach(PeerPoint point, int block) {
    if (at_peer_points) at_peer_points(point, block);
  }
};

void queue_on_cpu(const PeerSum& sum, void* /*stream*/) {
  for (int block = 0; block < sum.blocks; ++block) {
    if (sum.bits)
      peer::sum_block<OneThread, CpuWords, 2, peer::Joined, 2>(sum, block);
    else if (sum.pending <= 4 && sum.partials <= 4)
      peer::sum_block<OneThread, CpuWords, 4, peer::Added, 2>(sum, block);
    else if (sum.pending <= 4)
      peer::sum_block<OneThread, CpuWords, 4>(sum, block);
    else
      peer::sum_block<OneThread, CpuWords, kMostPeerPending>(sum, block);
  }
}

}  // namespace

const PeerKernels& PeerKernels::cpu() {
  static const PeerKernels kernels{queue_on_cpu, [] { return kMostPeerBlocks; }};
  return kernels;
}

// A block moves some ten kilobytes of each slice before another one pays.
int peer_blocks(int64_t floats, int members, int most) {
  constexpr int64_t kFloats = 4096;
  return static_cast<int>(std::clamp<int64_t>((floats / members + kFloats - 1) / kFloats, 1, most));
}

}  // namespace tandem
