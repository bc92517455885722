// engine/supervised.h -- a recipe for the usual case: a model, a data set, a loss per row.
//
// A user's own model derives from it and gives make_model(), make_data() and forward(); the rest has sensible defaults.
// One phase, `learn`; the loss of an update is the mean over its real rows. A model whose layers are those of nn/ runs
// several shards in one pass: forward() then gets the rows of all of them, and must treat each row for itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/recipe.h"

namespace tandem {

// What a recipe's own metrics are made of: integers that are counted over all rows of a validation set, and integers
// that every row leaves (ValidationSet::gathered). So they are the same for any number of workers, to the sample.
struct MoreMetrics {
  std::vector<ValidationMetric> metrics;  // after loss and accuracy
  int counts = 0, gathered = 0;
};

// Where validation's rows leave them.
class RowCounts {
 public:
  RowCounts(ShardContext& context, int first) : context_(context), first_(first) {}
  // To the counts from `index` on; of a bool tensor how many are true. Leave padding out: the first `real` rows count.
  void count(int index, const at::Tensor& values) { context_.count(first_ + index, values); }
  void gather(int index, const at::Tensor& values) { context_.gather(index, values); }  // of all rows
  int64_t real() const { return context_.batch().slice.real; }

 private:
  ShardContext& context_;
  int first_;
};

class SupervisedRecipe : public Recipe {
 public:
  explicit SupervisedRecipe(const RecipeSettings& settings) : settings_(settings) {}

  virtual std::shared_ptr<torch::nn::Module> make_model() = 0;
  // How its weights begin (nn/init.h). Default: as torch's layers do.
  virtual InitRules initial_weights() const { return {}; }
  virtual std::unique_ptr<Dataset> make_data() = 0;
  virtual at::Tensor forward(const Batch& batch, ShardContext& context) = 0;  // -> output, first dimension = rows
  // Loss of every row, [rows]. Default: cross-entropy of the output [rows, classes] with the labels tensors[1].
  virtual at::Tensor row_losses(const at::Tensor& output, const Batch& batch);
  // Whether each row was right, bool [rows], for the accuracy; undefined: no accuracy. Default: argmax equals the
  // label.
  virtual at::Tensor row_correct(const at::Tensor& output, const Batch& batch);

  // Samples that training never sees, gone through in their order without dropout; null: none. Loss and accuracy over
  // them are those of row_losses() and row_correct().
  virtual std::unique_ptr<Dataset> make_validation_data() { return nullptr; }
  // Whether validation has an accuracy. Default: whether the second tensor of a sample is a
  // label. Say no where row_correct() gives nothing.
  virtual bool has_accuracy() const;

  // Metrics of validation beside these two: F1, a confusion matrix. more_values() gives theirs, in their order;
  // `totals` has the counts and lists that count_more() has filled.
  virtual MoreMetrics more_metrics() const { return {}; }
  virtual void count_more(const at::Tensor& output, const Batch& batch, RowCounts& to) {}
  virtual std::vector<double> more_values(const ValidationTotals& totals) const { return {}; }

  // Whether forward(), row_losses() and row_correct() are the same operations at every step and read no tensor on the
  // host, so that they may be captured as a CUDA graph (Phase::capturable in engine/recipe.h). Say no for a loss that
  // changes its form at some step, or layers that are unfrozen later.
  virtual bool capturable() const { return true; }

  void build(JobState& state) final;
  std::vector<Phase> phases() const final;
  const Dataset* dataset() const final { return data_.get(); }
  void run(const Phase& phase, ShardContext& context) final;
  void apply(const Phase& phase, const Total& total, StepContext& context) final;
  std::vector<ValidationSet> validation_sets() const final;
  void validate(const ValidationSet& set, ShardContext& context) final;
  std::vector<double> validation_metrics(const ValidationSet& set, const ValidationTotals& totals) const final;
  int64_t steps_in(const std::string& unit, int64_t count) const final;

 private:
  const RecipeSettings& settings_;
  std::unique_ptr<Dataset> data_, validation_data_;
  std::unique_ptr<EpochSampler> sampler_;
  bool shard_aware_ = false;  // all layers are: several shards may run in one pass
};

}  // namespace tandem
