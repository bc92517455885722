// rl/dqn/dqn_range.h -- a contiguous range of shards on a GPU: a phase is one set of launches over all of them and one
// wait, captured once as a CUDA graph.
//
// Results of a row, a draw or a weight never depend on how many others are in a launch (rl/dqn/dqn_gpu.h), so every
// range gives the bits of its shards one by one.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "engine/gpu_device.h"
#include "engine/mirror.h"
#include "engine/recipe.h"
#include "rl/dqn/dqn_launch.h"
#include "rl/dqn/dqn_replicated.h"

namespace tandem {

// The same work at every call: it is queued eagerly once, then captured and replayed.
class ReplayedWork {
 public:
  // Work that reads nothing which changes between calls, but in memory. `refused`: why it can't be captured, told once.
  void queue(const std::function<void()>& work, std::string* refused);

 private:
  std::unique_ptr<CudaGraph> graph_;
  bool warm_ = false, eager_ = false;
};

class DqnRange {
 public:
  // `launch`: with inputs and reports still to be laid out. All but the launch must outlive this.
  DqnRange(DqnLaunch launch, const DqnKernels& kernels, GpuAdvance advance, DqnReplicated& replicated);
  DqnRange(const DqnRange&) = delete;

  // Phases of the range, whose shards these are, in order. act() and serve() are done when they return.
  void act(const StepParams& params, std::span<ShardContext> shards);
  void serve(const StepParams& params, std::span<ShardContext> shards);
  // Queues the gradient of the rows that the shards have received, summed along their tree: a whole subtree. Every
  // element is overwritten; loss, mean Q and TD errors go to `tail`, which is zero at first.
  void learn(const StepParams& params, std::span<ShardContext> shards, std::span<float> gradient, float* tail);

  const DqnLaunch& launch() const { return launch_; }
  std::string take_refusal() { return std::exchange(refused_, ""); }

 private:
  void queue_fetch_rows(int agent);
  void send(std::span<ShardContext> shards, int agent);
  void fill_inputs(std::span<ShardContext> shards);
  void put_params(const StepParams& params);

  DqnLaunch launch_;
  const DqnKernels& k_;
  GpuAdvance advance_;
  DqnReplicated& replicated_;
  std::unique_ptr<Mirror> inputs_, acted_, served_;
  DqnWork host_;  // the inputs' and the reports' pointers on the host
  ServedDraws draws_, host_draws_;
  ReplayedWork acting_, serving_, learning_;
  std::span<float> gradient_;  // that learning_ writes to
  float* tail_ = nullptr;
  std::string refused_;
};

}  // namespace tandem
