// engine/recipe.h -- what a training job must define for the engine. Recipes implement it; the engine never includes
// one.
//
// A step runs the recipe's phases in order. In a phase every shard runs (once per micro-batch), contributes, and
// the combined total is applied:
//     for shard in plan:  contribution = recipe.run(phase, shard)     pure: may change its own shard's state only
//     total = combine(contributions)                                  the same bits on every worker
//     recipe.apply(phase, total)                                      the same change everywhere; no shard's state
// run() is a function of (weights, the shard's state, what it received, seed, step, shard): never of the worker, the
// device or the time. Random numbers come from ShardContext::random(site), never from ATen's generator.
#pragma once

#include <ATen/core/Tensor.h>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/recipe_list.h"
#include "engine/batch.h"
#include "engine/job_state.h"
#include "kernels/random_source.h"
#include "kernels/update_decision.h"
#include "reduce/combine.h"
#include "reduce/exchange_message.h"
#include "telemetry/step_record.h"

namespace tandem {

class LoopObserver;
class TreeSums;

struct Phase {
  std::string name;           // for logs and messages
  int id = 0;                 // the recipe's own enum: which phase run() and apply() are asked for
  bool gradients = false;     // run() calls backward(); the engine combines the gradient and updates the weights
  bool batches = false;       // run() gets a batch of dataset()
  bool one_backward = false;  // one backward() per run(): finished blocks of the gradient may be sent meanwhile
  int floats = 0;             // further sums: losses, statistics
  int counts = 0;             // integer sums
  int maxima = 0;             // integer maxima
  bool exchange = false;      // messages to other shards, to be read in the next phase
  int64_t joined_floats = 0;  // the longest StepSum that stands for it in a fused step
  int all_to_all = 0;         // floats of a row for every shard, which the next phase reads: they stay on the device
  int64_t every = 1;          // it runs at steps 0, n, 2n, ...; a step's last phase runs at every step
  // run() may be captured as a CUDA graph and replayed at other steps: it is the same tensor operations at every step,
  // on batch(), inputs() and the weights; it draws by random() in kernels only, reports its sums by add() and count(),
  // reads no tensor on the host, and keeps none that a run after its first has made. The first steps compare the graph
  // with eager runs, and so do later ones now and then: what differs at first is not captured, what differs later ends
  // the run.
  bool capturable = false;
  // A captured or grouped run() changes its shard's state on the device, and no other state: it is saved before a
  // comparison, and put back.
  bool changes_state = false;
  // run_batched() runs all shards of a worker in one pass.
  bool batched = false;
  // run() can be asked for several shards at once, as a user of nn/'s layers gets it for nothing: batch() has the rows
  // of ShardContext::group shards, one after the other; random() has a part for each; backward() and add() get a value
  // for each. inputs(), exchange and all_to_all are not for such a phase. The engine compares it with one by one, at
  // first and now and then.
  bool grouped = false;
};

// A number that is found over a validation set.
struct ValidationMetric {
  std::string name;  // "accuracy"; reported as "validation/accuracy"
  bool larger_is_better = false;
  bool decides = true;  // the setting validation.best may name it; no: reported only, as the cells of a table are
};

// Samples that training never sees, and what is added up over them. The engine goes through them in their order, shard
// by shard in the shapes of training, and masks the remainder.
struct ValidationSet {
  std::string name;  // "validation", "test"
  const Dataset* data = nullptr;
  std::vector<ValidationMetric>
      metrics;     // the first one of the first set decides `best`, if the settings name no other
  int sums = 0;    // of floats, exact: ShardContext::sum()
  int counts = 0;  // of integers: ShardContext::counts and count()
  // Integers that each row leaves, such as its predicted class: ShardContext::gather(). All of them come together, in
  // the order of the set.
  int gathered = 0;
};

// Over a whole set: the same bits for any number of workers.
struct ValidationTotals {
  std::span<const double> sums;
  std::span<const int64_t> counts;
  int64_t samples = 0;
  std::span<const int64_t> gathered = {};  // [gathered][samples]
};

// What run() and validate() get.
class ShardContext {
 public:
  int64_t step = 0;         // steps before this one, skipped updates included
  int shard = 0;            // the first one of the group
  int group = 1;            // shards of this run: more than one in a phase that says `grouped`
  int64_t micro_batch = 0;  // which micro-batch of the accumulation
  int shards = 1;

  // The random stream of one site: a number of the recipe's own for each place that draws (as fold_in of a key does).
  // Two draws at one site and index are the same number.
  RandomSource random(uint32_t site) const {
    RandomSource source({.seed = seed_,
                         .step = static_cast<uint64_t>(step) * accumulation_ + micro_batch,
                         .shard = static_cast<uint32_t>(shard),
                         .site = site},
                        key_on_device_, training_);
    source.shards = group;
    return source;
  }
  bool training() const { return training_; }  // false in Recipe::validate()
  const Batch& batch() const { return *batch_; }
  const std::vector<at::Tensor>& inputs() const { return inputs_; }  // what Recipe::inputs() made, on the device
  JobState& job() { return *state_; }
  at::Tensor& state(ShardField field) { return state_->shard(field, shard); }
  // Adds the gradient of this micro-batch's part of the update's loss to the contribution. Give the sum over rows
  // divided by batch().slice.real_in_update (or by a count that all shards share): the parts then add up to the batch's
  // mean. Of a group: [group], a part for each shard (nn/shard_sums.h).
  void backward(const at::Tensor& loss);

  // The contribution itself, where the numbers live, for a recipe that finds its gradient without backward(): laid out
  // as the parameters, zero at first. And behind it the sums of floats, on a GPU.
  std::span<float> gradient() const { return gradient_; }
  double loss_scale() const { return loss_scale_; }
  float* sums_on_gpu() const { return float_sums_.defined() ? float_sums_.data_ptr<float>() : nullptr; }

  // A long run() calls it now and then, from any thread: it is at work, not frozen.
  void alive() const;

  std::span<const ExchangeMessage> messages() const { return inbox_->messages(); }
  void send(int to_shard, std::span<const std::byte> row) { send(to_shard, std::vector(row.begin(), row.end())); }
  void send(int to_shard, std::vector<std::byte>&& row);
  // [shards][all_to_all] on the device: row i is for shard i, zero at first; and in the next phase, row i is from it.
  const at::Tensor& outgoing_rows() const { return outgoing_rows_; }
  const at::Tensor& incoming_rows() const { return incoming_rows_; }

  // This shard's sums, zero at first; += in every micro-batch. Of a group, counts and maxima are common ones, and
  // floats can't be added here.
  std::span<float> floats;
  std::span<int64_t> counts, maxima;
  // The same from a tensor, which need not be waited for: its numbers are added to the sums from `index` on. For one
  // sum use one way or the other. Of a group: add() gets [group] or [group, sums], count() the numbers of all. Of a
  // bool tensor count() adds how many are true.
  void add(int index, const at::Tensor& value);
  void count(int index, const at::Tensor& value);
  // In validate(): adds the values of the real rows to sum `index` of the set, exactly. First dimension = rows.
  void sum(int index, const at::Tensor& values);
  // In validate(): an integer of every row, [rows], for list `index` of the set.
  void gather(int index, const at::Tensor& values);

 private:
  friend class ShardRunner;
  friend class TrainLoop;
  uint64_t seed_ = 0;
  uint64_t accumulation_ = 1;
  double loss_scale_ = 1;
  int backwards_left_ = INT_MAX;
  bool training_ = true;
  std::span<int64_t> sum_words_;  // of the validation set's sums (reduce/order_free_sum.h)
  std::span<int64_t> gathered_;   // behind them: [gathered][rows of the pass]
  int64_t rows_in_pass_ = 0;
  const Batch* batch_ = nullptr;
  std::vector<at::Tensor> inputs_;
  const RandomKey* key_on_device_ = nullptr;  // during capture
  at::Tensor loss_scale_tensor_;              // in place of loss_scale_ then
  at::Tensor float_sums_, count_sums_;        // on a GPU
  std::span<float> gradient_;
  JobState* state_ = nullptr;
  TreeSums* tree_sums_ = nullptr;  // of a group
  const Inbox* inbox_ = nullptr;
  std::vector<ExchangeMessage> outgoing_;
  at::Tensor outgoing_rows_, incoming_rows_;
  LoopObserver* observer_ = nullptr;
};

// Some of a worker's shards whose floats add up to one sum: a whole subtree of reduce/sum_tree.h.
struct Subtree {
  int first = 0, last = 0;    // indices among the worker's shards
  std::vector<int> merges;    // SumTree::merges()
  std::span<float> gradient;  // laid out as the parameters, on the device; empty in a phase without gradients
  // The recipe's sums of floats there, zero at first: of a recipe that leaves ShardContext::floats at zero.
  std::span<float> tail;
};

// What apply() sees, and fills in.
struct StepContext {
  int64_t step = 0;      // steps before this one, skipped updates included
  bool skipped = false;  // the engine dropped this update (NaN or overflow)
  JobState* state = nullptr;
  StepRecord* record = nullptr;  // loss, samples, epoch and metrics are the recipe's to fill in
};

// A sum over all workers in the middle of a fused step, on the device.
struct StepSum {
  int counts = 0;                    // integers that are added up
  const int64_t* counted = nullptr;  // those of this worker's shards
  int64_t* total = nullptr;          // those of all
  int64_t floats = 0;                // numbers of which each worker fills in some and leaves zeros elsewhere
  const float* mine = nullptr;
  float* joined = nullptr;  // everybody's: the same bits
};

// A whole step as one queue of GPU work. It must give the bits of the phases. The engine adds the update, copies
// `params` to the GPU before and `outputs` back after, and captures all of it once.
class FusedStep {
 public:
  virtual ~FusedStep() = default;
  virtual size_t params_bytes() const = 0;
  virtual void fill_params(int64_t step, double loss_scale, std::byte* params) = 0;
  virtual void queue_first(const std::byte* params) {}  // once, before the first step

  // Where this worker holds every shard: all phases up to the combined gradient; `total` is zero at first, and what is
  // written stays until the next step.
  virtual void queue_work(const std::byte* params, float* total) = 0;

  // Where others hold shards too, the same in parts: one before each sum, and the last, which makes the gradient of
  // each subtree that this worker's shards make up; those are zero at first, and what is written stays. Where a sum did
  // not end, `hold` is 0 on the device and the parts after it come again: they run then without valid sums, read
  // nothing by them and change no state but what they write again. For recipes whose shards have state: a worker's
  // death sends all back to a snapshot, so a part need not be undone.
  virtual std::vector<StepSum> sums() { return {}; }
  virtual void queue_part(int part, const std::byte* params, const int64_t* hold, std::span<float* const> gradients) {}
  virtual void queue_combined(const float* total, const int64_t* hold) {}  // its part of the total, before the update

  virtual size_t output_bytes() const = 0;
  virtual TargetUpdate target_update() const { return {}; }  // of all weights, in the update's kernel
  virtual void queue_applied(const UpdateDecision* decision, std::byte* outputs) = 0;  // after the update
  // What apply() of the phases before the last one does, then that of the last: between them a roll-back may happen.
  virtual void apply_earlier_phases(const std::byte* outputs, StepContext& context) = 0;
  virtual void apply(const std::byte* outputs, StepContext& context) = 0;
};

class Recipe {
 public:
  virtual ~Recipe() = default;
  // Makes the model: registers its parameters, the optimizer's groups and the fields of a shard's state.
  virtual void build(JobState& state) = 0;
  virtual std::vector<Phase> phases() const = 0;
  virtual const Dataset* dataset() const { return nullptr; }
  // The first state of a shard: a function of (seed, shard). Fields start as zeros.
  virtual void init_shard(ShardContext& context) {}
  // What run() needs from the host beside the batch, such as rows from messages(): of the same sizes at every step.
  virtual std::vector<at::Tensor> inputs(const Phase& phase, ShardContext& context) { return {}; }
  virtual void run(const Phase& phase, ShardContext& context) = 0;
  // What run() of each would do, to the bit, for a phase that says `batched`; inputs() is not called for it. In a phase
  // with gradients it overwrites every element of each sum's gradient with the sum along the tree, and changes no shard
  // state: where a sum is not finite, the engine calls run() shard by shard to find out which shard it was.
  virtual void run_batched(const Phase& phase, std::span<ShardContext> shards, std::span<const Subtree> sums) {}
  virtual void apply(const Phase& phase, const Total& total, StepContext& context) = 0;
  // The recipe's own kernels for a whole step of this worker's shards, on a GPU; null: it has none. Made anew when
  // shards or their state change.
  virtual std::unique_ptr<FusedStep> fused_step(JobState& state) { return nullptr; }
  // All that a step computes on this device is done by kernels of ours, so that its bits depend on a GPU's compute
  // capability alone, and not on its model or how many multiprocessors it has.
  virtual bool has_own_arithmetic() const { return false; }
  // ---- validation (engine/validation.h) ----
  virtual std::vector<ValidationSet> validation_sets() const { return {}; }  // once build() was called
  // One slice of a set: forward only, without random numbers and without change of any state. batch() is the slice.
  virtual void validate(const ValidationSet& set, ShardContext& context) {}
  // The values of set.metrics, in their order.
  virtual std::vector<double> validation_metrics(const ValidationSet& set, const ValidationTotals& totals) const {
    return {};
  }
  // A question about the weights, once they are restored: of the recipe's own verbs, asked and answered in JSON
  // (`tandem backtest`). Throws ConfigError for one that it does not know.
  virtual std::string answer(const std::string& question, JobState& state);
  // Steps that `epochs`, `episodes` or `iterations` of the settings amount to; 0: this recipe has no such unit.
  virtual int64_t steps_in(const std::string& unit, int64_t count) const { return 0; }
  virtual std::string unit() const { return "samples"; }
  // What the user should know of this worker since the last step, such as an environment that had to be started again.
  virtual std::string take_note() { return ""; }
};

// A recipe as a program knows it: its settings (no libtorch needed) and how to make it.
struct RecipeEntry {
  RecipeInfo info;
  std::function<std::unique_ptr<Recipe>(const RecipeSettings&)> make;
};
// Throws ConfigError with the nearest names if there is none of this name.
const RecipeEntry& find_recipe_entry(const std::vector<RecipeEntry>& recipes, const std::string& name);

}  // namespace tandem
