// engine/worker_threads.h -- for tests: the combines of workers that are threads of one process. They are those of
// processes: shared memory, and the sum over peers by the CPU's kernel.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/shared_memory.h"
#include "reduce/gpu_combine.h"
#include "reduce/peer_link.h"
#include "reduce/shm_combine.h"

namespace tandem {

enum class Between { kCpus, kGpus, kPeers };  // the GPUs combine through host memory, or by kernels

class WorkerThreads : public Watch {
 public:
  // `shape.ranges` says which shards each has. `kernels` outlive it.
  WorkerThreads(ShmShape shape, Between between, const PeerKernels& kernels = PeerKernels::cpu())
      : shape_(std::move(shape)),
        between_(between),
        kernels_(kernels),
        segment_(SharedMemory::create("threads", shm_combine_bytes(shape_))),
        sockets_(shape_.ranges.size(), std::vector<int>(shape_.ranges.size(), -1)) {
    for (size_t a = 0; a < sockets_.size(); ++a)
      for (size_t b = a + 1; between == Between::kPeers && b < sockets_.size(); ++b) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("socketpair");
        sockets_[a][b] = ends[0];
        sockets_[b][a] = ends[1];
      }
  }

  // Once for each worker; this outlives it.
  std::unique_ptr<Combine> combine(size_t me) {
    const ShardRange mine = shape_.ranges[me];
    std::unique_ptr<Combine> inner = std::make_unique<ShmCombine>(
        shape_, static_cast<int>(me), SharedMemory::adopt(dup(segment_.fd()), segment_.bytes().size()), 1, 0, *this);
    if (between_ == Between::kCpus) return inner;
    if (between_ == Between::kGpus || shape_.ranges.size() == 1)
      return std::make_unique<GpuCombine>(shape_.shards, mine, std::move(inner), cpu_device());
    LinkMembers members{.shards = shape_.shards, .ranges = shape_.ranges, .me = static_cast<int>(me), .generation = 1};
    members.ranks.resize(shape_.ranges.size());
    std::iota(members.ranks.begin(), members.ranks.end(), 0);
    static const std::unique_ptr<PeerMemory> memory = host_peer_memory(cpu_device());
    PeerSumLink::Options options{.asked_for = "TANDEM_PLANE=peer", .waits = true, .wait_ns = wait_ns};
    options.note = options.log = [](const std::string&) {};
    auto link = std::make_unique<PeerSumLink>(
        std::move(members), peer_words(shape_, segment_), socket_peer_mail(std::move(sockets_[me])),
        PeerSumLink::Gpu{.device = cpu_device(),
                         .kernels = &kernels_,
                         .idle = [] { return true; },
                         .steps = me != on_cpu,
                         .host_memory = memory.get()},
        std::move(options), std::max(shape_.max_floats, shape_.max_joined), *this);
    auto talk = std::make_unique<LinkTalk>(std::move(inner), *link, mine.size());
    return std::make_unique<GpuCombine>(shape_.shards, mine, std::move(talk), cpu_device(), std::move(link));
  }

  bool abandoned(uint64_t, int64_t) const override { return abandon || (abandons_ && abandons_()); }
  void abandon_when(std::function<bool()> abandons) { abandons_ = std::move(abandons); }  // while none of them runs

  std::atomic<bool> abandon = false;  // what all are in
  std::atomic<bool> dead = false;     // one of them, for a test's own use
  int64_t wait_ns = 1'000'000;        // a kernel's longest wait, which is its thread's own
  size_t on_cpu = SIZE_MAX;           // a worker that is not on a GPU as the others are

 private:
  ShmShape shape_;
  Between between_;
  const PeerKernels& kernels_;
  SharedMemory segment_;
  std::function<bool()> abandons_;
  std::vector<std::vector<int>> sockets_;
};

}  // namespace tandem
