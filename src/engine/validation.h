// engine/validation.h -- validation sets: when they are gone through, what is added up, which step was the best.
//
// A pass takes one slice of a set for every shard, at the shapes of training, as a phase does: any number of workers,
// a death in the middle of a pass and a resume give the same numbers. All sums are whole numbers
// (reduce/order_free_sum.h), so they equal those of a plain loop over the set. Every decision follows from combined
// numbers: all workers make the same one at the same step. The loop that runs the passes is TrainLoop::validate().
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/recipe.h"

namespace tandem {

// What is kept in every snapshot.
struct ValidationState {
  std::string metric;  // that decides: "validation/accuracy"
  std::optional<double> best;
  int64_t best_step = -1, validated_step = -1;
  int64_t without_gain = 0;  // validations since the best one
};

class Validation {
 public:
  // Throws ConfigError for settings that do not fit the recipe's sets: a metric that does not exist, patience without a
  // set, a set smaller than the number of shards.
  Validation(const RecipeSettings& settings, const Recipe& recipe);

  const std::vector<ValidationSet>& sets() const { return sets_; }
  const std::vector<Phase>& phases() const { return phases_; }  // one for each set: what a pass contributes
  int64_t every() const { return every_; }                      // steps; 0: never
  bool due(int64_t step) const { return every_ > 0 && step % every_ == 0; }

  // ---- one set after the other ----
  int64_t passes(size_t set) const;
  // Rows of a pass: the set in its order; what is missing at the end is filled with other rows of it, of weight 0.
  Slice slice(size_t set, int64_t pass, int shard) const;
  void begin();
  void take(size_t set, int64_t pass, std::span<const int64_t> counts);  // the total of one pass
  // All passes are done: the metrics, the one that decides first. `scheduled`: it counts for the patience.
  NamedValues finish(int64_t step, bool scheduled);

  // ---- what follows ----
  const ValidationState& state() const { return state_; }
  bool is_best(int64_t step) const { return state_.best_step == step; }
  bool stops() const;  // the patience is at its end
  nlohmann::json save() const;
  void load(const nlohmann::json& saved);

 private:
  void check_sets() const;
  void choose_metric();
  void choose_interval();
  nlohmann::json set_sizes() const;
  int64_t rows_of_pass() const { return settings_.shards * settings_.micro_batch_size(); }
  bool better(double value) const;

  const RecipeSettings& settings_;
  const Recipe& recipe_;
  std::vector<ValidationSet> sets_;
  std::vector<Phase> phases_;
  size_t best_set_ = 0, best_metric_ = 0;
  int64_t every_ = 0;
  std::vector<std::vector<int64_t>> totals_;    // by set
  std::vector<std::vector<int64_t>> gathered_;  // by set: [gathered][samples]
  ValidationState state_;
};

}  // namespace tandem
