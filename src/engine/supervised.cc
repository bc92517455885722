#include "engine/supervised.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "base/errors.h"
#include "nn/cross_entropy.h"
#include "nn/layer_context.h"
#include "nn/shard_sums.h"

namespace tandem {
namespace {

// Every layer with parameters; and there is one.
bool all_shard_aware(const torch::nn::Module& model) {
  bool any = false;
  for (const auto& part : model.modules()) {
    if (part->parameters(/*recurse=*/false).empty()) continue;
    if (!dynamic_cast<const ShardAware*>(part.get())) return false;
    any = true;
  }
  return any;
}

}  // namespace

void SupervisedRecipe::build(JobState& state) {
  const std::shared_ptr<torch::nn::Module> model = make_model();
  shard_aware_ = all_shard_aware(*model);
  state.add_model(model, "", initial_weights());
  data_ = make_data();
  if (data_->size() <= 0)
    throw ConfigError("the data set is empty", "an epoch needs at least one sample",
                      "look at where the data comes from");
  validation_data_ = make_validation_data();
  const int64_t unit = settings_.shards * settings_.accumulation;
  constexpr int64_t kCheap = 4096;  // rows: a handful of samples may be tried with any recipe's batch
  if (settings_.batch_size > std::max({2 * data_->size(), unit, kCheap}))
    throw ConfigError(
        fmt::format("a batch of {} is more than twice the data: {} samples", settings_.batch_size, data_->size()),
        "an update takes each sample once at most; the rest of the batch would be computed for nothing",
        fmt::format("set batch_size to {} or less", (data_->size() + unit - 1) / unit * unit));
  sampler_ = std::make_unique<EpochSampler>(data_->size(), settings_.shards, settings_.accumulation,
                                            settings_.micro_batch_size(), settings_.seed);
}

std::vector<Phase> SupervisedRecipe::phases() const {
  return {{.name = "learn",
           .gradients = true,
           .batches = true,
           .one_backward = true,
           .floats = 1,
           .counts = 3,  // loss; rows, right, judged
           .capturable = capturable(),
           .grouped = true}};
}

at::Tensor SupervisedRecipe::row_losses(const at::Tensor& output, const Batch& batch) {
  if (shard_aware_) return cross_entropy(output, batch.tensors.at(1));
  return torch::nn::functional::cross_entropy(output, batch.tensors.at(1),
                                              torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
}

at::Tensor SupervisedRecipe::row_correct(const at::Tensor& output, const Batch& batch) {
  if (output.dim() != 2 || batch.tensors.size() < 2 || batch.tensors[1].scalar_type() != at::kLong) return {};
  return output.argmax(1) == batch.tensors[1];
}

void SupervisedRecipe::run(const Phase&, ShardContext& context) {
  const Batch& batch = context.batch();
  const at::Tensor output = forward(batch, context);
  at::Tensor losses = row_losses(output, batch);
  if (losses.scalar_type() != at::kFloat) losses = losses.to(at::kFloat);
  // Padding has weight 0; the divisor is the update's, not the shard's, so that the parts add up to the mean.
  const at::Tensor sums =
      shard_aware_ ? shard_sums(losses, batch.weight, context.group) : (losses * batch.weight).sum();
  const at::Tensor loss = sums / static_cast<double>(batch.slice.real_in_update);
  context.backward(loss);
  context.add(0, loss);
  context.counts[0] += batch.slice.real;
  at::NoGradGuard no_grad;
  if (const at::Tensor correct = row_correct(output, batch); correct.defined()) {
    const bool padded = batch.slice.real < correct.size(0);
    const at::Tensor rows = padded ? correct.narrow(0, 0, batch.slice.real) : correct;
    context.count(1, rows.scalar_type() == at::kBool ? rows : rows.sum());
    context.counts[2] += batch.slice.real;
  }
}

void SupervisedRecipe::apply(const Phase&, const Total& total, StepContext& context) {
  StepRecord& record = *context.record;
  record.loss = total.floats[0];
  record.samples = static_cast<double>(total.counts[0]);
  record.epoch = sampler_->epoch_of(context.step);
  if (total.counts[2] > 0)
    record.metrics.emplace_back("accuracy",
                                static_cast<double>(total.counts[1]) / static_cast<double>(total.counts[2]));
}

bool SupervisedRecipe::has_accuracy() const {
  const int64_t first = 0;
  const std::vector<at::Tensor> sample = validation_data_->load({&first, 1}, {});
  return sample.size() > 1 && sample[1].scalar_type() == at::kLong && sample[1].dim() == 1;
}

std::vector<ValidationSet> SupervisedRecipe::validation_sets() const {
  if (!validation_data_) return {};
  ValidationSet set{.name = "validation", .data = validation_data_.get(), .metrics = {{"loss"}}, .sums = 1};
  if (validation_data_->size() > 0 && has_accuracy()) {
    set.metrics.push_back({"accuracy", true});
    set.counts = 1;
  }
  const MoreMetrics more = more_metrics();
  set.metrics.insert(set.metrics.end(), more.metrics.begin(), more.metrics.end());
  set.counts += more.counts;
  set.gathered = more.gathered;
  return {set};
}

// Counts of a set: rows that were right, where there is an accuracy, then the recipe's own.
void SupervisedRecipe::validate(const ValidationSet& set, ShardContext& context) {
  const Batch& batch = context.batch();
  const at::Tensor output = forward(batch, context);
  context.sum(0, row_losses(output, batch));
  const MoreMetrics more = more_metrics();
  const int own = set.counts - more.counts;
  if (own > 0) {
    const at::Tensor correct = row_correct(output, batch);
    if (!correct.defined())
      throw ConfigError("row_correct() gives nothing, though has_accuracy() says that validation has an accuracy",
                        "a number that is promised must be found", "let has_accuracy() return false");
    context.count(0, correct.narrow(0, 0, batch.slice.real).sum());
  }
  if (more.metrics.empty()) return;
  RowCounts counts(context, own);
  count_more(output, batch, counts);
}

std::vector<double> SupervisedRecipe::validation_metrics(const ValidationSet& set,
                                                         const ValidationTotals& totals) const {
  const double samples = static_cast<double>(totals.samples);
  const MoreMetrics more = more_metrics();
  const auto own = static_cast<size_t>(set.counts - more.counts);
  std::vector<double> values{totals.sums[0] / samples};
  if (own > 0) values.push_back(static_cast<double>(totals.counts[0]) / samples);
  if (more.metrics.empty()) return values;
  ValidationTotals its = totals;
  its.counts = totals.counts.subspan(own);
  const std::vector<double> further = more_values(its);
  values.insert(values.end(), further.begin(), further.end());
  return values;
}

int64_t SupervisedRecipe::steps_in(const std::string& unit, int64_t count) const {
  return unit == "epochs" ? count * sampler_->updates_per_epoch() : 0;
}

}  // namespace tandem
