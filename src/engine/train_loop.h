// engine/train_loop.h -- the loop: what one worker does in one step.
//
// Reading order: cli/worker.cc -> engine/train_loop.cc -> recipes/tiny.cc -> reduce/exact_sum.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/run_settings.h"
#include "engine/job_state.h"
#include "engine/loader.h"
#include "engine/lockstep.h"
#include "engine/recipe.h"
#include "engine/sampler.h"
#include "engine/shard_plan.h"
#include "engine/update.h"
#include "reduce/combine.h"

namespace tandem {

class TrainLoop {
 public:
  // Builds the recipe's state; the weights are those of step 0. This process drives the shards of `mine` and meets the
  // others through `combine`.
  TrainLoop(const RecipeSettings& settings, std::unique_ptr<Recipe> recipe, ShardRange mine,
            std::unique_ptr<Combine> combine);
  // One process that plays every worker of the plan.
  TrainLoop(const RecipeSettings& settings, std::unique_ptr<Recipe> recipe, const ShardPlan& plan);

  StepRecord step();  // one pass over the recipe's phases
  // What the user should know about the last step ("" if nothing): a skipped update, a roll-back.
  const std::string& note() const { return note_; }

  int64_t steps_done() const { return steps_done_; }
  void set_steps_done(int64_t steps) { steps_done_ = steps; }
  JobState& state() { return state_; }
  Update& update() { return update_; }
  Recipe& recipe() { return *recipe_; }
  const EpochSampler* sampler() const { return sampler_ ? &*sampler_ : nullptr; }

  // For tests: the order in which shards are visited. It must not matter.
  void visit_in_order(std::vector<int> shards) { visit_order_ = std::move(shards); }

 private:
  ContributionLayout layout_of(const Phase& phase) const;
  bool lockstep() const { return settings_.sync_bn && state_.has_batch_norm(); }
  void run_alone(const Phase& phase);
  void run_in_lockstep(const Phase& phase);
  Contribution run_shard(const Phase& phase, int shard, int slot);
  Batch make_batch(const LoadKey& key) const;
  LoadKey next_batch(const LoadKey& key) const;

  struct Desk {  // what a shard works with beside its gradient; one per contribution slot
    std::vector<float> floats;
    std::vector<int64_t> counts, maxima;
    BatchNormPiece norm;
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
  std::unique_ptr<Loader> loader_;
  std::vector<Desk> desks_;
  int64_t steps_done_ = 0, steps_here_ = 0;
  std::string note_;
};

}  // namespace tandem
