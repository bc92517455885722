// engine/data_plane.h -- how the contributions of this worker reach the others: what goes around its combine.
//
// CPU workers meet through the combine itself. A GPU's sums go over NCCL between the GPUs of one machine, or as
// partials through host memory where NCCL refuses; the bits are the same (reduce/nccl_plane.h). TANDEM_PLANE=host
// leaves NCCL out, TANDEM_PLANE=nccl ends the run where NCCL refuses. TANDEM_NCCL names another library than the one
// that libtorch brings; then CPU workers use it too: it is the tests' own.
#pragma once

#include <functional>
#include <memory>

#include "fleet/order.h"
#include "launch/channel.h"
#include "reduce/combine.h"
#include "reduce/nccl_plane.h"
#include "reduce/watch.h"

namespace tandem {

class DataPlane {
 public:
  // For the device that was taken (engine/gpu_device.h). Tells the launcher over `channel` why host memory is used, at
  // which `step`, or why this process ends: a GPU that does not come back. Throws ConfigError for a TANDEM_PLANE that
  // does not exist.
  DataPlane(Channel& channel, std::function<int64_t()> step);

  // The members change: ends what is under way between the GPUs. Before anything else is done to this GPU.
  void make_way(int shards, const Order& order, int me);
  void drop();  // the same, for good
  // However a worker ends: what is destroyed then waits for the GPU, which may wait for a peer that is gone.
  struct DropAtEnd {
    explicit DropAtEnd(DataPlane& p) : plane(p) {}
    ~DropAtEnd() { plane.drop(); }
    DataPlane& plane;
  };
  // `combine` was made for the order's members, of whom this worker is number `me`; `one_machine`: all are here.
  std::unique_ptr<Combine> around(std::unique_ptr<Combine> combine, int shards, const Order& order, int me,
                                  bool one_machine, const Watch& watch);

 private:
  std::unique_ptr<NcclPlane> nccl_;
  bool required_ = false;  // host memory will not do
};

}  // namespace tandem
