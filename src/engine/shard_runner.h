// engine/shard_runner.h -- runs one shard of a phase; what all executors share.
//
// It has the shards of this worker in their order of visits, the memory that each needs, their batches and the
// combine. Devices differ in two things only, made once: where sums are kept (PhaseSums) and what can be captured.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/run_settings.h"
#include "engine/all_to_all.h"
#include "engine/batch_source.h"
#include "engine/executor.h"
#include "engine/gpu_device.h"
#include "engine/gradient_ready.h"
#include "engine/input_staging.h"
#include "engine/job_state.h"
#include "engine/loop_observer.h"
#include "engine/phase_run.h"
#include "engine/phase_sums.h"
#include "engine/tree_sums.h"
#include "engine/update.h"
#include "reduce/combine.h"
#include "reduce/sum_tree.h"

namespace tandem {

// What a shard needs beside its gradient; one for each of this worker's shards.
struct ShardScratch {
  std::vector<float> floats;  // the recipe's, on the host
  std::vector<int64_t> counts, maxima;
  std::vector<ExchangeMessage> messages;
  at::Tensor vector;  // what is summed in a phase without gradients
  MicroBatch norm;
  std::unique_ptr<TreeSums> tree;  // of the pass that begins with this shard
};

// Shards that run in one pass, and the whole subtrees that they make up.
struct ShardGroup {
  int first = 0, count = 1;  // indices: order()[first], ...
  std::vector<PassPart> parts;
};

class ShardRunner {
 public:
  // `gpu`: null on a CPU. Phases: the recipe's, then those of validation sets.
  ShardRunner(const RecipeSettings& settings, Recipe& recipe, JobState& state, Update& update, BatchSource& batches,
              std::vector<const Phase*> phases, GpuDevice* gpu);

  // Other shards, another order, other members: everything that belonged to the old ones goes.
  void assign(ShardRange mine, std::vector<int> order, Combine& combine);
  void watch(LoopObserver* observer) { observer_ = observer; }
  void on_note(std::function<void(std::string)> note) { note_ = std::move(note); }

  // ---- what executors need ----
  const RecipeSettings& settings() const { return settings_; }
  Recipe& recipe() { return recipe_; }
  JobState& state() { return state_; }
  Update& update() { return update_; }
  Combine& combine() { return *combine_; }
  BatchSource& batches() { return batches_; }
  GpuDevice* gpu() { return gpu_; }
  Device& device() { return device_; }
  LoopObserver* observer() { return observer_; }
  const std::vector<int>& order() const { return order_; }
  int count() const { return static_cast<int>(order_.size()); }
  bool holds_all() const { return mine_.size() == state_.shards(); }
  ShardRange mine() const { return mine_; }
  int64_t runs_here(const PhaseRun& run) const { return runs_[run.index]; }  // of this phase, in this process
  ShardScratch& scratch(int index) { return scratch_[static_cast<size_t>(index)]; }
  PhaseSums& sums(const PhaseRun& run);
  AllToAll* mail(size_t phase);  // of a phase with all_to_all; else null
  void clear_inboxes();          // at the end of a step
  void note(std::string text) { note_(std::move(text)); }
  int64_t micro_batches(const Phase& phase) const { return phase.gradients ? settings_.accumulation : 1; }
  ContributionLayout layout_of(const Phase& phase, bool last) const;

  // ---- one phase ----
  void begin(const PhaseRun& run);       // the combine's phase
  void clear_sums(const PhaseRun& run);  // and what is to be sent, before shards run
  // All shards of this worker, `size` of them to a pass. More than one only where the shards are in order.
  std::vector<ShardGroup> groups(int size) const;
  // Runs a group in one pass; each part's sum goes to a vector, from `buffer` on: JobState::contribution() or, without
  // gradients, its own. On a GPU the work is queued.
  void run_group(const PhaseRun& run, ShardGroup& group, int buffer);
  // The same for the shard order()[index] alone.
  std::span<const float> run_shard(const PhaseRun& run, int index, int buffer);
  ShardContext context_of(const PhaseRun& run, int index);                    // with its host sums, zeroed
  ShardContext bare_context(const PhaseRun& run, int shard);                  // without them
  void give_batch(const PhaseRun& run, ShardContext& context, Batch& batch);  // loads it, on the device
  std::span<float> vector_of(const PhaseRun& run, int index, int buffer);     // not zeroed
  std::vector<at::Tensor> staged_inputs(const PhaseRun& run, ShardContext& context, const Batch* batch);
  void put_floats(const PhaseRun& run, std::span<const float> host, std::span<float> tail);
  void take_messages(ShardContext& context, int index);  // what it sent, into its scratch
  void send_mail(const PhaseRun& run);                   // queued, or as messages
  double wait();                                         // until the device has done everything; seconds
  void read_sums(const PhaseRun& run);                   // after a wait: counts and NaN flags, into the scratch
  void add_sums(const PhaseRun& run);                    // of all shards, to the combine
  Total finish(const PhaseRun& run);
  std::span<const float> floats_of(const PhaseRun& run, const Total& total);  // the recipe's, on the host
  PhaseResult finish_with_floats(const PhaseRun& run) {
    const Total total = finish(run);
    return {total, floats_of(run, total)};
  }

  // ---- what happens around a run ----
  template <class Work>
  void checked_for_generator(const PhaseRun& run, const Work& work) {  // that ATen's own was not drawn from
    const bool look = runs_here(run) < 2 && !staging_;
    const std::string before = look ? generator_state() : "";
    work();
    if (look) check_generator(*run.phase, before);
  }
  void shard_begins(int index) {
    if (observer_ && !staging_) observer_->shard_begins(order_[static_cast<size_t>(index)]);
  }
  void shard_ends(int index) {
    if (observer_ && !staging_) observer_->shard_ends(order_[static_cast<size_t>(index)]);
  }
  void report_all_ended();  // the first one has begun, and all are done

  // While it lives, shards take their inputs from the staging buffer, and their work is captured, not run.
  class FromStaging {
   public:
    FromStaging(ShardRunner& runner, const InputStaging& staging) : runner_(runner) { runner.staging_ = &staging; }
    ~FromStaging() { runner_.staging_ = nullptr; }

   private:
    ShardRunner& runner_;
  };
  void keep_batches(bool keep) { keep_batches_ = keep; }  // they are asked for again
  double gpu_seconds() const { return gpu_seconds_; }     // waited for the device, in all
  void add_gpu_seconds(double seconds) { gpu_seconds_ += seconds; }
  int most_in_pass() const { return most_in_pass_; }  // shards of one pass with gradients, at most; 0: none ran

 private:
  void run_micro_batch(const PhaseRun& run, const ShardGroup& group, ShardContext& context, Batch& batch);
  std::vector<Batch> batches_of(const PhaseRun& run, const ShardGroup& group);
  Batch joined_batch(const PhaseRun& run, const ShardGroup& group, ShardContext& context, std::span<Batch> loaded);
  void find_nonfinite(const PhaseRun& run, const ShardGroup& group);
  void use_staging(const Phase& phase, ShardContext& context, int place, Batch& batch);
  void upload(const PhaseRun& run, ShardContext& context, Batch& batch);
  void set_layers(const PhaseRun& run, const ShardGroup& group, const Batch& batch);
  void reset_scratch(const PhaseRun& run, int index);
  static std::string generator_state();
  static void check_generator(const Phase& phase, const std::string& before);

  const RecipeSettings& settings_;
  Recipe& recipe_;
  JobState& state_;
  Update& update_;
  BatchSource& batches_;
  std::vector<const Phase*> phases_;
  GpuDevice* gpu_;
  Device& device_;
  Combine* combine_ = nullptr;
  LoopObserver* observer_ = nullptr;
  std::function<void(std::string)> note_ = [](std::string) {};
  ShardRange mine_{0, 0};
  SumTree tree_;
  std::vector<int> order_;
  std::vector<ShardGroup> singles_;
  std::vector<ShardScratch> scratch_;
  std::vector<std::unique_ptr<PhaseSums>> sums_;   // by phase
  std::vector<std::unique_ptr<AllToAll>> mail_;    // by phase
  std::unique_ptr<GradientReady> gradient_ready_;  // where the combine has a use for it
  const InputStaging* staging_ = nullptr;
  bool keep_batches_ = false;
  std::vector<float> recipe_floats_;
  std::vector<int64_t> runs_;  // by phase
  double gpu_seconds_ = 0;
  int most_in_pass_ = 0;
};

}  // namespace tandem
