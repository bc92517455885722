// engine/train_loop.h -- the loop: what one worker does in one step.
//
// Reading order: engine/worker.cc -> engine/train_loop.cc -> engine/executor.h -> engine/shard_runner.cc ->
// engine/supervised.cc and recipes/tiny.cc -> reduce/exact_sum.cc -> engine/update.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/run_settings.h"
#include "engine/batch_source.h"
#include "engine/executor.h"
#include "engine/executor_fused.h"
#include "engine/job_state.h"
#include "engine/loop_observer.h"
#include "engine/phase_run.h"
#include "engine/recipe.h"
#include "engine/shard_plan.h"
#include "engine/shard_runner.h"
#include "engine/update.h"
#include "engine/validation.h"
#include "reduce/combine.h"
#include "reduce/watch.h"

namespace tandem {

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
  void watch(LoopObserver* observer);
  // What the user should know about the last step ("" if nothing): a skipped update, a roll-back.
  const std::string& note() const { return note_; }
  // The same for one of several workers: what all know is reported by the first, what happened to one alone by that
  // one.
  std::vector<std::string> take_notes(bool first) {
    std::vector<std::string> notes{first ? note_ : "", recipe_->take_note(), batches_->take_note(),
                                   update_.take_note()};
    std::erase(notes, "");
    return notes;
  }

  int64_t steps_done() const { return steps_done_; }
  void set_steps_done(int64_t steps);  // after the state was changed from outside
  const RecipeSettings& settings() const { return settings_; }
  void note_at_next_step(const std::string& text) { later_ += (later_.empty() ? "" : "; ") + text; }
  // Nothing that was trained before this step can turn out to be wrong; nothing: no comparisons are made, or not yet.
  std::optional<int64_t> equal_at();
  JobState& state() { return state_; }
  Combine& combine() { return *combine_; }
  const std::vector<Phase>& phases() const { return phases_; }
  // The largest contribution of any phase: what a transport must have room for.
  ContributionLayout largest_layout() const;
  int64_t longest_joined() const;  // floats, between GPUs that sum by themselves (StepSum)
  // A worker's death loses what its shards held, so everybody goes back to a snapshot.
  bool stateful() const;
  Update& update() { return update_; }
  Recipe& recipe() { return *recipe_; }
  Validation& validation() { return *validation_; }
  bool lockstep() const { return settings_.sync_bn && state_.has_batch_norm(); }
  bool validating() const { return validating_; }
  const EpochSampler* sampler() const { return batches_->sampler(); }
  double load_seconds() const { return batches_->waited_seconds(); }  // waited for batches, in all
  const MakeTimes& making() const { return batches_->making(); }
  double gpu_seconds() const { return shards_->gpu_seconds(); }  // waited for a GPU to end its work, in all
  int shards_in_pass() const { return shards_->most_in_pass(); }

  // For measurements: calls measure(work) in place of the next fused step, where the recipe has one.
  void measure_next(MeasureStep measure);
  // For tests: the order in which shards are visited. It must not matter.
  void visit_in_order(std::vector<int> shards);

 private:
  std::vector<PhaseRun> phase_runs();  // of this step: those that are due, or one that stands for all
  // Nothing, if the step's way has changed with the members: it is begun again.
  std::optional<PhaseResult> run_and_combine(PhaseRun run);
  Executor& executor_of(const PhaseRun& run);
  std::unique_ptr<Executor> choose_executor(const PhaseRun& run);
  FusedExecutor* fused();
  void assign(ShardRange mine, std::vector<int> order);
  void check_phases() const;
  UpdateResult update_weights(const PhaseRun& run, const PhaseResult& result);
  void fill_record(const UpdateResult& result, StepRecord& record);
  void end_step(StepRecord& record, double begin);

  const RecipeSettings& settings_;
  std::unique_ptr<Recipe> recipe_;
  JobState state_;
  std::vector<Phase> phases_;
  Update update_;
  std::unique_ptr<Combine> combine_;
  std::unique_ptr<Validation> validation_;
  std::unique_ptr<BatchSource> batches_;
  std::unique_ptr<ShardRunner> shards_;
  std::vector<std::unique_ptr<Executor>> executors_;  // by phase; made when first needed
  std::unique_ptr<FusedExecutor> fused_;
  bool looked_for_fused_ = false;
  bool validating_ = false;
  int64_t steps_done_ = 0, steps_here_ = 0;
  std::function<void()> enter_generation_;
  std::function<int64_t()> request_;
  int64_t agreed_request_ = 0, phase_sequence_ = 0;
  std::optional<int64_t> equal_at_;  // by executors that were replaced
  LoopObserver* observer_ = nullptr;
  std::string note_, later_;
  std::set<std::string> reported_;  // notes of executors
};

}  // namespace tandem
