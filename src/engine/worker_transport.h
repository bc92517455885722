// engine/worker_transport.h -- the transport of this worker's contributions: what is wrapped around its combine.
//
// CPU workers use the combine itself. A GPU's sums go over NCCL between the GPUs of one machine, or as partials through
// host memory where NCCL refuses (reduce/nccl_transport.h), or by kernels that read the other GPUs' memory
// (reduce/peer_link.h); the bits are the same. TANDEM_PLANE chooses (reduce/plane.h); `nccl`, `peer` and `pinned` must
// work, or the run ends. TANDEM_NCCL names another library than the one that libtorch brings; then CPU
// workers use it too, as they use kernels where TANDEM_PLANE asks for them: that is for tests.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fleet/generation.h"
#include "launch/channel.h"
#include "reduce/combine.h"
#include "reduce/nccl_transport.h"
#include "reduce/peer_link.h"
#include "reduce/peer_memory.h"
#include "reduce/plane.h"
#include "reduce/shm_combine.h"
#include "reduce/watch.h"

namespace tandem {

// What a sum by kernels needs of a generation (reduce/peer_link.h); the sockets belong to whoever takes it.
struct PeerMeans {
  std::optional<PeerWords> words;
  std::vector<int> sockets;  // by member; empty: there are none
  int64_t most_floats = 0;
};

class TrainLoop;

// What a transport between the members of a generation has room for.
ShmShape shape_of(TrainLoop& loop, const GenerationStart& start);

// `links` to the other members, in their order, of whom this worker is number `me`.
PeerMeans peer_means(std::span<const Channel> links, int me, const ShmShape& shape, const SharedMemory& segment);

class WorkerTransport {
 public:
  // For the device that was taken (engine/gpu_device.h). Tells the launcher over `channel` why host memory is used, at
  // which `step`, or why this process ends: a GPU that does not come back. Throws ConfigError for a TANDEM_PLANE that
  // does not exist.
  WorkerTransport(Channel& channel, std::function<int64_t()> step);

  // The members change: ends what is under way between the GPUs. Before anything else is done to this GPU.
  void make_way(int shards, const GenerationStart& next, int me);
  void drop();  // the same, for good
  // However a worker ends: what is destroyed then waits for the GPU, which may wait for a peer that is gone.
  struct DropAtEnd {
    explicit DropAtEnd(WorkerTransport& p) : transport(p) {}
    ~DropAtEnd() { transport.drop(); }
    WorkerTransport& transport;
  };
  // `combine` was made for the members of `current`, of whom this worker is number `me`; `one_machine`: all are here.
  std::unique_ptr<Combine> around(std::unique_ptr<Combine> combine, PeerMeans means, int shards,
                                  const GenerationStart& current, int me, bool one_machine, const Watch& watch);

 private:
  std::unique_ptr<Combine> over_peers(std::unique_ptr<Combine> combine, PeerMeans means, const LinkMembers& members,
                                      const Watch& watch);

  void refuse_peers(const std::string& why);  // throws, or tells it

  Plane plane_;
  std::function<void(const std::string&)> note_, log_;
  std::function<int64_t()> step_;
  std::unique_ptr<PeerMemory> device_memory_, host_memory_;
  PeerSumLink* peers_ = nullptr;  // of the combine that is in use
  std::string no_peers_;          // why they were not used, as it was told
  Channel& channel_;
  std::unique_ptr<NcclTransport> nccl_;
};

}  // namespace tandem
