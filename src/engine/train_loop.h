// engine/train_loop.h -- the loop: what one worker does in one step.
//
// Reading order: engine/worker.cc -> engine/train_loop.cc -> recipes/tiny.cc -> reduce/exact_sum.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/run_settings.h"
#include "engine/batch_maker.h"
#include "engine/epoch_sampler.h"
#include "engine/gpu_phase.h"
#include "engine/gradient_ready.h"
#include "engine/job_state.h"
#include "engine/loader.h"
#include "engine/lockstep.h"
#include "engine/recipe.h"
#include "engine/shard_plan.h"
#include "engine/update.h"
#include "engine/validation.h"
#include "reduce/combine.h"
#include "reduce/watch.h"

namespace tandem {

// Notified of where the loop is; for progress counters and fault points.
class LoopObserver {
 public:
  virtual ~LoopObserver() = default;
  virtual void phase_begins(int64_t step, int phase) = 0;
  virtual void shard_begins(int shard) = 0;
  virtual void shard_ends(int shard) = 0;
  virtual void combine_begins() = 0;
  virtual void combine_ends() = 0;
  virtual void applied() = 0;
};

// Bytes of batches made ahead, where nobody asked for a number of them.
inline constexpr size_t kMostLoadedAhead = size_t{1} << 30;

// The combine as it is, or around it what brings contributions from a GPU to it.
std::unique_ptr<Combine> for_this_device(int64_t shards, ShardRange mine, std::unique_ptr<Combine> combine);

class TrainLoop {
 public:
  // Builds the recipe's state; the weights are those of step 0. This process runs the shards of `mine`; `combine`
  // connects it with the others.
  TrainLoop(const RecipeSettings& settings, std::unique_ptr<Recipe> recipe, ShardRange mine,
            std::unique_ptr<Combine> combine);
  // One process that runs the shards of every worker of the plan.
  TrainLoop(const RecipeSettings& settings, std::unique_ptr<Recipe> recipe, const ShardPlan& plan);

  StepRecord step();  // one pass over the recipe's phases
  // Goes through the validation sets with the weights as they are; adds what was found to the record. `scheduled`: it
  // counts for the patience.
  void validate(StepRecord& record, bool scheduled);
  // At the interval's steps, and at the last one in any case: every run ends with a number.
  void validate_if_due(StepRecord& record, bool last_step);

  // Another range of shards and other members. The state of the shards is zeros afterwards: begin_shards() or a
  // snapshot fills it.
  void reassign(ShardRange mine, std::unique_ptr<Combine> combine);
  void begin_shards();  // the first state of this process's shards
  // Called when the members change in the middle of a phase (reduce/watch.h). It enters the next generation: either it
  // calls reassign(), and the phase is run again, or it throws to give the step up.
  void on_members_changed(std::function<void()> enter_generation) { enter_generation_ = std::move(enter_generation); }
  // The newest request that this worker has seen, and the one that all agreed on in the step's last combine: the
  // highest of all members.
  void take_requests_from(std::function<int64_t()> request) { request_ = std::move(request); }
  int64_t agreed_request() const { return agreed_request_; }
  int64_t phase_sequence() const { return phase_sequence_; }  // of the first combine of the phase that runs now
  void watch(LoopObserver* observer) { observer_ = observer; }
  // What the user should know about the last step ("" if nothing): a skipped update, a roll-back.
  const std::string& note() const { return note_; }
  // The same for one of several workers: what all know is reported by the first, what happened to one alone by that
  // one.
  std::vector<std::string> take_notes(bool first) {
    std::vector<std::string> notes{first ? note_ : "", recipe_->take_note()};
    std::erase(notes, "");
    return notes;
  }

  int64_t steps_done() const { return steps_done_; }
  void set_steps_done(int64_t steps);  // after the state was changed from outside
  JobState& state() { return state_; }
  Combine& combine() { return *combine_; }
  const std::vector<Phase>& phases() const { return phases_; }
  // The largest contribution of any phase: what a transport must have room for.
  ContributionLayout largest_layout() const;
  // A worker's death loses what its shards held, so everybody goes back to a snapshot.
  bool stateful() const;
  Update& update() { return update_; }
  Recipe& recipe() { return *recipe_; }
  Validation& validation() { return *validation_; }
  bool lockstep() const { return settings_.sync_bn && state_.has_batch_norm(); }
  bool validating() const { return validating_ != nullptr; }
  const EpochSampler* sampler() const { return sampler_ ? &*sampler_ : nullptr; }
  double load_seconds() const { return load_seconds_; }  // waited for batches, in all
  const MakeTimes& making() const { return making_; }
  double gpu_seconds() const { return gpu_seconds_; }  // waited for a GPU to end its work, in all

  // For measurements: calls measure(work) in place of the next fused step, where the recipe has one.
  void measure_next(std::function<void(const std::function<void()>&)> measure) { measure_ = std::move(measure); }
  // For tests: the order in which shards are visited. It must not matter.
  void visit_in_order(std::vector<int> shards) {
    visit_order_ = std::move(shards);
    gpu_phases_.clear();
  }

 private:
  ContributionLayout layout_of(const Phase& phase) const;
  Total run_and_combine(const Phase& phase);
  void start_loader();
  size_t index_of(const Phase& phase) const;  // training's phases first, then those of validation sets
  Batch load_validation(int shard);
  void run_shards(const Phase& phase);
  bool run_batched(const Phase& phase);  // false: not this phase, or not this time; run_shards()
  void run_in_lockstep(const Phase& phase);
  // `index`: among this process's shards; `buffer`: which vector of JobState::contribution() it fills.
  Contribution run_shard(const Phase& phase, int shard, int index, int buffer);
  void run_micro_batch(const Phase& phase, ShardContext& context, int index, int64_t micro_batch,
                       std::span<float> vector);
  void flag_nonfinite(const Phase& phase, int shard, int index, std::span<const float> vector);
  void use_staged_inputs(const Phase& phase, ShardContext& context, int index, Batch& batch);
  std::span<float> zeroed_vector(const Phase& phase, int index, int buffer);
  ShardContext context_of(int shard);
  ShardContext context_of(const Phase& phase, int shard, int index);  // with its sums, zeroed
  void fill_record(const UpdateResult& result, StepRecord& record);
  void end_step(StepRecord& record, double begin);

  // ---- on a GPU: train_loop_gpu.cc ----
  GpuPhase& gpu_phase(const Phase& phase);
  void run_on_gpu(const Phase& phase);
  void queue_shards(const Phase& phase, int branches = 1);  // all shards of this worker, so many side by side
  int branches_for(const Phase& phase, size_t bytes_at_work);
  void try_capture(const Phase& phase, GpuPhase& gpu);  // beside the eager run just made
  bool has_fused_step();
  StepRecord run_fused_step();  // all phases of a recipe that has a FusedStep
  void launch_fused_step();
  std::optional<int64_t> agree_on_request();
  bool has_step_graph(const Phase& phase);  // shards and update in one graph; captured here, once it may be
  Total launch_step_graph(const Phase& phase);
  void launch_update_graph(const Phase& phase, const Total& total, int64_t flag);
  bool stage_inputs(const Phase& phase, GpuPhase& gpu, int64_t step);
  void stage_ahead(const Phase& phase, GpuPhase& gpu);
  void use_eager(const Phase& phase, GpuPhase& gpu, const std::string& why);
  [[noreturn]] void capture_went_stale(const Phase& phase);
  void report_shards_done();
  std::vector<at::Tensor> host_inputs(const Phase& phase, ShardContext& context, const Batch* batch);
  bool is_unpadded(const Phase& phase, int64_t step) const;
  const Batch& loaded_batch(const LoadKey& key);
  Batch load(const LoadKey& key);
  double wait_for_gpu();  // returns the seconds
  void reset_scratch(const Phase& phase, const GpuPhase& gpu);
  void read_outputs(const Phase& phase, GpuPhase& gpu);
  void add_host_sums(const Phase& phase);
  DeviceCombine& device_combine();
  Batch make_batch(const LoadKey& key) const;
  LoadKey next_batch(const LoadKey& key) const;

  struct ShardScratch {         // what a shard needs beside its gradient; one for each of this process's shards
    std::vector<float> floats;  // the recipe's, on the host
    at::Tensor vector;          // what is summed in a phase without gradients
    std::vector<int64_t> counts, maxima;
    std::vector<ExchangeMessage> messages;
    BatchNormMicroBatch norm;
  };

  const RecipeSettings& settings_;
  std::unique_ptr<Recipe> recipe_;
  ShardRange mine_;
  std::vector<int> visit_order_;
  JobState state_;
  std::vector<Phase> phases_;
  Update update_;
  std::unique_ptr<Combine> combine_;
  Lockstep lockstep_;
  std::optional<EpochSampler> sampler_;
  std::unique_ptr<Validation> validation_;
  const ValidationSet* validating_ = nullptr;  // the set that is gone through now
  int64_t pass_ = 0;                           // of it
  MakeTimes making_;                           // these three outlive the loader's threads
  std::unique_ptr<BatchMaker> maker_;          // of the recipe's data set
  std::vector<std::unique_ptr<BatchMaker>> validation_makers_;
  std::unique_ptr<Loader> loader_, validation_loader_;
  std::unique_ptr<GradientReady> gradient_ready_;  // where the combine has a use for it
  std::vector<ShardScratch> scratch_;
  std::vector<ShardContext> batched_;  // of run_batched(), kept for their memory
  std::vector<float> recipe_floats_;
  int64_t steps_done_ = 0, steps_here_ = 0;
  double load_seconds_ = 0, gpu_seconds_ = 0;
  std::function<void()> enter_generation_;
  std::function<int64_t()> request_;
  int64_t requested_ = 0, agreed_request_ = 0, phase_sequence_ = 0;
  LoopObserver* observer_ = nullptr;
  std::string note_;

  struct FusedState;
  std::shared_ptr<FusedState> fused_;  // where the recipe has one and this worker holds all shards
  bool looked_for_fused_ = false;
  std::function<void(const std::function<void()>&)> measure_;
  std::vector<std::unique_ptr<GpuPhase>> gpu_phases_;  // by phase
  std::map<LoadKey, Batch> loaded_;                    // of this step and, staged ahead, of the next
  bool capturing_ = false;                             // what run_shard() queues is captured, not run
  GpuPhase* updated_by_ = nullptr;                     // whose graph has made this phase's update, if one has
  std::vector<int64_t> graph_counts_, graph_maxima_;
};

}  // namespace tandem
