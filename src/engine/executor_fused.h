// engine/executor_fused.h -- all phases of a step by a recipe's own kernels (FusedStep), with the update as one graph.
//
// On a worker that holds every shard, or on any number of them where the GPUs sum by themselves
// (DeviceCombine::queues_steps): then the sums over all workers stand in the graph, between the parts of the step. What
// a worker runs in one pass otherwise is a batched phase.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/executor.h"
#include "engine/gpu_device.h"
#include "engine/recipe.h"

namespace tandem {

// Calls measure(work) in place of running the step's work.
using MeasureStep = std::function<void(const std::function<void()>&)>;

class FusedExecutor : public Executor {
 public:
  // Null where the recipe has no fused step, or none in parts and others hold shards.
  static std::unique_ptr<FusedExecutor> make(ShardRunner& shards);
  ~FusedExecutor() override;
  PhaseResult run(const PhaseRun& run) override;
  void before_update(const PhaseRun& run, const PhaseResult& result, StepContext& context) override;
  void apply(const PhaseRun& run, const PhaseResult& result, StepContext& context) override;
  void measure_next(MeasureStep measure) { measure_ = std::move(measure); }  // for measurements

 private:
  struct Memory;
  FusedExecutor(ShardRunner& shards, std::unique_ptr<FusedStep> step);
  Total agree(const PhaseRun& run);
  void begin_first(const PhaseRun& run);
  void launch(const std::function<void()>& work);
  PhaseResult run_with_others(const PhaseRun& run);
  void wait_for_others();
  void begin_combining();
  DeviceCombine& device_combine();

  ShardRunner& shards_;
  GpuDevice& gpu_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<CudaGraph> graph_;
  MeasureStep measure_;
  bool begun_ = false, warm_ = false, eager_ = false;  // warm: one step ran eagerly, so all memory is allocated
  bool combining_ = false;                             // told to whoever watches
  std::vector<int64_t> agreed_;
};

}  // namespace tandem
