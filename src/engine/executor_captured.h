// engine/executor_captured.h -- a phase on a GPU as CUDA graphs: captured once, replayed at every step.
//
// Inputs lie in one block of GPU memory, filled by one copy per step; outputs in another, read by one copy. So all work
// of a phase has fixed addresses. It runs eagerly in the first steps, is then captured, and replayed beside eager runs
// until it gave the same bits twice. A worker that holds all shards then captures the update with it: a step is one
// launch, and its combine, which sends nothing, comes before: afterwards nobody can join in this phase. With others,
// the shards are one graph and the update another, unless the GPUs sum by themselves (DeviceCombine::queues_total):
// then the sum is part of the step's graph, and the host only watches. Later steps are compared with eager runs now and
// then (16, 32, 64, ..., and every 4,096): a graph that has served and differs ends the run. What can't be captured
// runs eagerly, and the run says why. Passes: a graph has several shards to a pass, where they give the same bits
// (engine/shard_groups.h). The eager runs that it is compared with go shard by shard, so each such comparison is one of
// passes too, and where it fails passes are compared with no graph around them, to see which of the two it is. A phase
// that is not captured is handed to the serial executor, which has several shards to a pass as well.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/device_state.h"
#include "engine/executor.h"
#include "engine/gpu_device.h"
#include "engine/input_staging.h"
#include "engine/phase_outputs.h"
#include "engine/shard_groups.h"
#include "engine/shard_runner.h"
#include "reduce/combine.h"

namespace tandem {

// Why nothing is to be captured, by the environment's variables: CUDA_LAUNCH_BLOCKING=1, TANDEM_GRAPHS=off. Or "".
std::string eager_asked_for();

class CapturedExecutor : public PhaseExecutor {
 public:
  CapturedExecutor(ShardRunner& shards, const PhaseRun& run);
  PhaseResult run(const PhaseRun& run) override;
  std::optional<int64_t> equal_at() const override { return serial_ ? serial_->equal_at() : groups_->last_equal(); }

 private:
  using Bits = std::vector<uint64_t>;
  static constexpr int kTimesEqual = 2;  // at two steps, so that nothing of the first one's numbers is in the graph
  static int host_copy(int64_t step) { return static_cast<int>(step % 2); }
  static std::vector<int64_t> total_counts(const std::vector<std::vector<int64_t>>& by_shard);
  void run_shards(const PhaseRun& run);
  void replay_shards(const PhaseRun& run);
  void queue_shards(const PhaseRun& run, int branches = 1);  // all shards of this worker, so many side by side
  void queue_groups(const PhaseRun& run);                    // the same, several to a pass
  void queue_captured(const PhaseRun& run);                  // as the graph has it
  void queue_eagerly(const PhaseRun& run);                   // one after the other
  void try_capture(const PhaseRun& run, const std::vector<at::Tensor>& state);  // beside the eager run just made
  std::string sums_on_host(const PhaseRun& run);  // why it can't be captured, if it adds up there
  void capture_shards(const PhaseRun& run, const std::vector<at::Tensor>& state, std::string* refused);
  bool replays_alike(const PhaseRun& run, const Bits& eager, const std::vector<std::vector<int64_t>>& counts);
  int branches_for(const PhaseRun& run, size_t bytes_at_work);
  bool has_bad();  // a NaN or Inf among what the shards gave
  void find_bad_shard(const PhaseRun& run);
  Bits fingerprint(const PhaseRun& run, const Partials& partials);
  void reset_scratch(const PhaseRun& run);
  void use_eager(const Phase& phase, const std::string& why);
  PhaseResult run_serially(const PhaseRun& run);
  [[noreturn]] void went_stale(const PhaseRun& run);
  DeviceCombine& device_combine();

  // ---- with the update ----
  bool has_step_graph(const PhaseRun& run);
  PhaseResult launch_step(const PhaseRun& run);
  void capture_step(const PhaseRun& run);
  void begin_combining();
  bool sums_on_gpus();  // the sum over all workers is part of the step's graph
  void queue_end_of_step(const PhaseRun& run);
  void wait_for_all(const PhaseRun& run);  // and for the other workers, in such a graph's sum
  Total total_of_step(const PhaseRun& run, Total total);
  Total total_from_gpu(const PhaseRun& run);
  void tell_bad_shards();
  void launch_update(const PhaseRun& run, PhaseResult& result);

  // ---- inputs ----
  bool stage_inputs(const PhaseRun& run, int64_t step);
  void queue_inputs(const PhaseRun& run);
  void stage_ahead(const PhaseRun& run);
  template <class Wait>
  void stage_ahead_and(const PhaseRun& run, const Wait& wait);

  GpuDevice& gpu_;
  PhaseOutputs& outputs_;
  DeviceState state_;
  std::unique_ptr<InputStaging> staging_;
  std::unique_ptr<CudaGraph> shards_graph_, step_graph_;  // the second includes the update
  at::Tensor tensor_starts_;                              // on the GPU: where the tensors of a vector begin
  std::unique_ptr<CudaGraph> update_graph_;               // the update alone, of a total at total_
  bool update_refused_ = false;
  const float* total_ = nullptr;
  std::span<const float> step_total_;              // where the step's graph leaves the total
  Partials partials_;                              // where a graph leaves its sums
  std::vector<std::vector<int64_t>> host_counts_;  // what run() counted on the host during capture
  int branches_ = 1;                               // shards that run side by side in the graph
  std::unique_ptr<ShardGroups> groups_;            // serial_ has them then
  std::unique_ptr<Executor> serial_;               // in place of this one, where the phase is not captured
  int group_size_ = 1;                             // shards to a pass in the graph
  bool combining_ = false;                         // told to whoever watches, before the step's graph had ended
  bool began_ = false, step_agreed_ = false;
  bool trim_ = false;          // give memory back at the end of this run
  int agreed_ = 0;             // times that the graph gave the bits of the eager run
  bool only_batches_ = false;  // all that it needs from the host
  bool alone_;                 // the step has no other phase
  std::string why_eager_;      // not empty: it is not captured
  int64_t staged_step_ = -1;   // whose inputs lie in host copy staged_step_ % 2
  std::vector<int64_t> counts_, maxima_;
  UpdateDecision decision_;  // of the step, with its floats
  std::vector<float> floats_;
};

template <class Wait>
void CapturedExecutor::stage_ahead_and(const PhaseRun& run, const Wait& wait) {
  BatchSource& batches = shards_.batches();
  const double loaded = batches.waited_seconds();
  stage_ahead(run);
  // A GPU that is still at work was not kept waiting by the next step's batches.
  const double staging = batches.waited_seconds() - loaded;
  if (wait() <= 0.05 * staging) return;
  batches.forgive(staging);
  shards_.add_gpu_seconds(staging);
}

}  // namespace tandem
