// engine/worker_transport.h -- the transport of this worker's contributions: what is wrapped around its combine.
//
// CPU workers use the combine itself. A GPU's sums go over NCCL between the GPUs of one machine, or as
// partials through host memory where NCCL refuses; the bits are the same (reduce/nccl_transport.h). TANDEM_PLANE=host
// leaves NCCL out, TANDEM_PLANE=nccl ends the run where NCCL refuses. TANDEM_NCCL names another library than the one
// that libtorch brings; then CPU workers use it too: it is the tests' own.
#pragma once

#include <functional>
#include <memory>

#include "fleet/generation.h"
#include "launch/channel.h"
#include "reduce/combine.h"
#include "reduce/nccl_transport.h"
#include "reduce/watch.h"

namespace tandem {

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
  std::unique_ptr<Combine> around(std::unique_ptr<Combine> combine, int shards, const GenerationStart& current, int me,
                                  bool one_machine, const Watch& watch);

 private:
  std::unique_ptr<NcclTransport> nccl_;
  bool required_ = false;  // host memory will not do
};

}  // namespace tandem
