// engine/executor.h -- who runs the shards of a phase, and how.
//
// One is chosen for each phase and plan (TrainLoop::choose_executor()); all give the same bits:
//   serial     shard by shard                                                executor_serial.cc
//   batched    all shards in one pass of the recipe (Recipe::run_batched)    executor_batched.cc
//   lockstep   side by side, with all-reduces inside the phase (sync_bn)     executor_lockstep.cc
//   captured   as a CUDA graph, several shards side by side, with the update where one worker holds all shards or the
//              GPUs sum by themselves                                        executor_captured.cc
//   fused      the recipe's own kernels for all phases of a step             executor_fused.cc
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "engine/phase_run.h"
#include "kernels/update_decision.h"
#include "reduce/combine.h"

namespace tandem {

class ShardGroups;
class ShardRunner;

struct PhaseResult {
  Total total;                              // the same bits on every worker; its floats lie on the device
  std::span<const float> floats;            // the recipe's part of them, on the host
  const UpdateDecision* applied = nullptr;  // the update was part of the work: what became of it
};

class Executor {
 public:
  virtual ~Executor() = default;
  // Runs this worker's shards and combines. Throws MembersChanged (reduce/watch.h): nothing was applied then.
  virtual PhaseResult run(const PhaseRun& run) = 0;
  // Before and after the update's bookkeeping, in which a roll-back may happen.
  virtual void before_update(const PhaseRun& run, const PhaseResult& result, StepContext& context) {}
  virtual void apply(const PhaseRun& run, const PhaseResult& result, StepContext& context) = 0;
  // The step of the last equal comparison with a plainer way to run the phase (engine/suspect_error.h): what was
  // trained before it is right. Nothing where none is made, or not yet.
  virtual std::optional<int64_t> equal_at() const { return std::nullopt; }
};

// One that leaves the applying to Recipe::apply().
class PhaseExecutor : public Executor {
 public:
  explicit PhaseExecutor(ShardRunner& shards) : shards_(shards) {}
  void apply(const PhaseRun& run, const PhaseResult& result, StepContext& context) override;

 protected:
  ShardRunner& shards_;
};

std::unique_ptr<Executor> make_serial(ShardRunner& shards);
// With what is known of its passes already.
std::unique_ptr<Executor> make_serial(ShardRunner& shards, std::unique_ptr<ShardGroups> groups);
std::unique_ptr<Executor> make_lockstep(ShardRunner& shards);
// Null where it can't be: the phase has no batched form, or its sums can't be made by the recipe.
std::unique_ptr<Executor> make_batched(ShardRunner& shards, const PhaseRun& run);
// Null without a GPU, or where the phase is not to be captured.
std::unique_ptr<Executor> make_captured(ShardRunner& shards, const PhaseRun& run);

}  // namespace tandem
