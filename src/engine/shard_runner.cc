#include "engine/shard_runner.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/errors.h"
#include "engine/determinism.h"
#include "engine/precision.h"
#include "engine/resident_data.h"
#include "kernels/device.h"
#include "nn/here.h"
#include "reduce/order_free_sum.h"

namespace tandem {

ShardRunner::ShardRunner(const RecipeSettings& settings, Recipe& recipe, JobState& state, Update& update,
                         BatchSource& batches, std::vector<const Phase*> phases, GpuDevice* gpu)
    : settings_(settings),
      recipe_(recipe),
      state_(state),
      update_(update),
      batches_(batches),
      phases_(std::move(phases)),
      gpu_(gpu),
      device_(gpu ? gpu->device() : tandem::device()),
      tree_(state.shards()),
      runs_(phases_.size()) {}

void ShardRunner::assign(ShardRange mine, std::vector<int> order, Combine& combine) {
  mine_ = mine;
  order_ = std::move(order);
  combine_ = &combine;
  scratch_.resize(order_.size());
  for (ShardScratch& scratch : scratch_) scratch = {};
  singles_.clear();
  for (size_t i = 0; i < order_.size(); ++i)
    singles_.push_back(
        {static_cast<int>(i), 1, {{.node = tree_.leaf(order_[i]), .first = 0, .last = 1, .merges = {0}}}});
  sums_.clear();
  sums_.resize(phases_.size());
  mail_.clear();
  mail_.resize(phases_.size());
}

PhaseSums& ShardRunner::sums(const PhaseRun& run) {
  std::unique_ptr<PhaseSums>& sums = sums_[run.index];
  if (!sums) sums = gpu_ ? make_gpu_sums(count(), *run.phase, device_) : make_host_sums(count(), device_);
  return *sums;
}

AllToAll* ShardRunner::mail(size_t phase) {
  if (phase >= phases_.size() || phases_[phase]->all_to_all == 0) return nullptr;
  std::unique_ptr<AllToAll>& mail = mail_[phase];
  if (!mail) mail = std::make_unique<AllToAll>(state_.shards(), mine_, phases_[phase]->all_to_all, device_);
  return mail.get();
}

void ShardRunner::clear_inboxes() {
  combine_->clear_inboxes();
  for (const auto& mail : mail_)
    if (mail) mail->clear_incoming();
}

ContributionLayout ShardRunner::layout_of(const Phase& phase, bool last) const {
  ContributionLayout layout{.floats = phase.floats,
                            .counts = phase.counts,
                            .maxima = phase.maxima,
                            .exchange = phase.exchange || phase.all_to_all > 0};
  if (phase.gradients) {
    layout.floats += state_.parameter_floats() + state_.statistic_floats();
    layout.maxima += 1;  // the NaN flag
  }
  if (last) layout.maxima += 1;  // the request
  return layout;
}

// ---- one phase ----

void ShardRunner::begin(const PhaseRun& run) { combine_->begin(layout_of(*run.phase, run.last)); }

void ShardRunner::clear_sums(const PhaseRun& run) {
  sums(run).begin();
  if (AllToAll* mail = this->mail(run.index)) mail->clear();
}

std::vector<ShardGroup> ShardRunner::groups(int size) const {
  if (size <= 1) return singles_;
  std::vector<ShardGroup> groups;
  const std::vector<int> subtrees = combine_->subtrees();
  for (int first = 0; first < count(); first += size) {
    ShardGroup group{first, std::min(size, count() - first), {}};
    const int begin = order_[static_cast<size_t>(first)], end = begin + group.count;
    for (const int subtree : subtrees) {
      const SumTree::Node& whole = tree_.node(subtree);
      const int from = std::max(begin, whole.first), to = std::min(end, whole.last);
      if (from >= to) continue;
      for (const int node : tree_.cover(from, to))
        group.parts.push_back({.node = node,
                               .first = tree_.node(node).first - begin,
                               .last = tree_.node(node).last - begin,
                               .merges = tree_.merges(node)});
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

std::span<const float> ShardRunner::run_shard(const PhaseRun& run, int index, int buffer) {
  ShardGroup& alone = singles_[static_cast<size_t>(index)];
  run_group(run, alone, buffer);
  return alone.parts.front().vector;
}

// One micro-batch after the other.
void ShardRunner::run_group(const PhaseRun& run, ShardGroup& group, int buffer) {
  const Phase& phase = *run.phase;
  const size_t floats = static_cast<size_t>(phase.floats);
  if (phase.gradients) most_in_pass_ = std::max(most_in_pass_, group.count);
  shard_begins(group.first);
  for (size_t k = 0; k < group.parts.size(); ++k) {
    std::span<float>& vector = group.parts[k].vector;
    vector = vector_of(run, group.first + static_cast<int>(k), buffer + static_cast<int>(k));
    device_.zero(vector.data(), vector.size_bytes());
  }
  const std::span<float> vector = group.parts.front().vector, tail = vector.last(floats);
  ShardContext context = context_of(run, group.first);
  for (int i = 1; i < group.count; ++i) reset_scratch(run, group.first + i);
  std::unique_ptr<TreeSums>& tree = scratch(group.first).tree;
  if (!tree) tree = std::make_unique<TreeSums>(state_);
  tree->begin(group.count, group.parts, phase.floats, micro_batches(phase) > 1 || !phase.one_backward);
  struct EndPass {  // however it ends: layers outside a pass have one shard, and nobody who takes leaves
    LayerContext& layers;
    ~EndPass() {
      static_cast<MicroBatch&>(layers) = {};
      layers.shards = 1;
      layers.sums = nullptr;
    }
  } end_pass{state_.layers()};
  context.group = group.count;
  context.tree_sums_ = tree.get();
  if (group.count == 1) {
    if (phase.gradients) context.gradient_ = vector.first(static_cast<size_t>(state_.parameter_floats()));
    context.float_sums_ = sums(run).floats(tail);
  }
  context.count_sums_ = sums(run).counts_to(group.first);
  std::vector<Batch> batches = batches_of(run, group);
  for (int64_t micro_batch = 0; micro_batch < micro_batches(phase); ++micro_batch) {
    context.micro_batch = micro_batch;
    Batch batch = phase.batches ? joined_batch(run, group, context, batches) : Batch();
    run_micro_batch(run, group, context, batch);
  }
  tree->finish();
  if (group.count == 1)
    put_floats(run, scratch(group.first).floats, tail);
  else if (std::ranges::any_of(scratch(group.first).floats, [](float x) { return x != 0; }))
    throw std::logic_error("phase '" + phase.name + "' adds to context.floats of several shards: context.add() can");
  find_nonfinite(run, group);
  take_messages(context, group.first);
}

// Each shard raises its flag before the sum, where NaN can still be traced to its shard and tensor. A lone shard's
// vector is the total itself: there the norm finds it (update.cc), and one pass is saved. Of shards that ran in one
// pass, the first one of a subtree speaks for it.
void ShardRunner::find_nonfinite(const PhaseRun& run, const ShardGroup& group) {
  if (!run.phase->gradients || state_.shards() == 1) return;
  const auto floats = static_cast<size_t>(state_.parameter_floats() + state_.statistic_floats());
  for (const PassPart& part : group.parts)
    sums(run).find_nonfinite(group.first + part.first, part.vector.first(floats));
}

// What is summed: the gradient with its tail, or the recipe's floats alone.
std::span<float> ShardRunner::vector_of(const PhaseRun& run, int index, int buffer) {
  const int64_t floats = layout_of(*run.phase, run.last).floats;
  if (run.phase->gradients) return state_.contribution(buffer).first(static_cast<size_t>(floats));
  at::Tensor& own = scratch(index).vector;
  if (!own.defined() || own.numel() < floats) own = at::empty({floats}, here());
  return {own.data_ptr<float>(), static_cast<size_t>(floats)};
}

void ShardRunner::put_floats(const PhaseRun& run, std::span<const float> host, std::span<float> tail) {
  if (!tail.empty()) sums(run).put_floats(host, tail, staging_ != nullptr);
}

void ShardRunner::take_messages(ShardContext& context, int index) {
  scratch(index).messages = std::move(context.outgoing_);
}

void ShardRunner::send_mail(const PhaseRun& run) {
  AllToAll* const mail = this->mail(run.index);
  if (!mail) return;
  if (mail->is_local()) return mail->deliver();
  if (staging_) return;  // the host sends, after the graph
  for (int index = 0; index < count(); ++index)
    for (ExchangeMessage& message : mail->messages(order_[static_cast<size_t>(index)] - mine_.first))
      scratch(index).messages.push_back(std::move(message));
}

// In the order in which they are loaded: all micro-batches of a shard, then those of the next.
std::vector<Batch> ShardRunner::batches_of(const PhaseRun& run, const ShardGroup& group) {
  std::vector<Batch> batches;
  if (!run.phase->batches || group.count * micro_batches(*run.phase) == 1) return batches;
  for (int i = 0; i < group.count; ++i)
    for (int64_t micro_batch = 0; micro_batch < micro_batches(*run.phase); ++micro_batch)
      batches.push_back(batches_.get(run, order_[static_cast<size_t>(group.first + i)], micro_batch, keep_batches_));
  return batches;
}

// On the device: the rows of one shard's micro-batch, or those of all shards of the group.
Batch ShardRunner::joined_batch(const PhaseRun& run, const ShardGroup& group, ShardContext& context,
                                std::span<Batch> loaded) {
  const int64_t micro_batches = this->micro_batches(*run.phase);
  Batch joined;
  std::vector<std::vector<at::Tensor>> parts;
  for (int i = 0; i < group.count; ++i) {
    const int index = group.first + i;
    Batch batch = loaded.empty() ? batches_.get(run, context.shard, context.micro_batch, keep_batches_)
                                 : std::move(loaded[static_cast<size_t>(i * micro_batches + context.micro_batch)]);
    context.batch_ = &batch;
    if (staging_)
      use_staging(*run.phase, context, static_cast<int>(index * micro_batches + context.micro_batch), batch);
    else
      upload(run, context, batch);
    if (group.count == 1) {
      joined = std::move(batch);
      break;
    }
    batch.tensors.push_back(batch.weight);
    parts.resize(batch.tensors.size());
    for (size_t t = 0; t < parts.size(); ++t) parts[t].push_back(batch.tensors[t]);
    joined.slice.real += batch.slice.real;
    joined.slice.real_in_update = batch.slice.real_in_update;
    joined.slice.epoch = batch.slice.epoch;
    joined.slice.samples.insert(joined.slice.samples.end(), batch.slice.samples.begin(), batch.slice.samples.end());
  }
  for (const std::vector<at::Tensor>& part : parts) joined.tensors.push_back(at::cat(part));
  if (!parts.empty()) {
    joined.weight = joined.tensors.back();
    joined.tensors.pop_back();
  }
  if (staging_)  // that of the first shard; the others' follow from it
    context.key_on_device_ = staging_->key(static_cast<int>(group.first * micro_batches + context.micro_batch));
  return joined;
}

void ShardRunner::run_micro_batch(const PhaseRun& run, const ShardGroup& group, ShardContext& context, Batch& batch) {
  const Phase& phase = *run.phase;
  const std::span<float> vector = group.parts.front().vector;
  if (phase.batches) context.batch_ = &batch;
  if (!phase.batches) {
    if (staging_)
      use_staging(phase, context, static_cast<int>(group.first * micro_batches(phase) + context.micro_batch), batch);
    else
      upload(run, context, batch);
  }
  set_layers(run, group, batch);
  if (phase.one_backward) context.backwards_left_ = 1;
  if (phase.one_backward && group.count == 1 && context.micro_batch + 1 == micro_batches(phase) &&
      combine_->wants_ready(context.shard)) {
    if (!gradient_ready_) gradient_ready_ = std::make_unique<GradientReady>(state_);
    gradient_ready_->begin([this, shard = context.shard, vector](int64_t first, int64_t last) {
      combine_->ready(shard, vector, first, last);
    });
    context.tree_sums_->on_final([this](int64_t offset) { gradient_ready_->final_at(offset); });
  }
  struct EndReady {  // however run() ends: the hooks report for this backward() alone
    GradientReady* ready;
    TreeSums* sums;
    ~EndReady() {
      if (ready) ready->end();
      sums->on_final(nullptr);
    }
  } end_ready{gradient_ready_.get(), context.tree_sums_};
  checked_for_generator(run, [&] {
    PrecisionScope precision(settings_.precision);
    if (run.set)
      recipe_.validate(*run.set, context);
    else
      recipe_.run(phase, context);
  });
}

void ShardRunner::upload(const PhaseRun& run, ShardContext& context, Batch& batch) {
  for (at::Tensor& tensor : batch.tensors) tensor = here(tensor);
  if (run.phase->batches) batch.weight = here(batch.weight);
  if (!run.set) context.inputs_ = recipe_.inputs(*run.phase, context);
  for (at::Tensor& tensor : context.inputs_) tensor = here(tensor);
  expand_resident(batch);
}

void ShardRunner::give_batch(const PhaseRun& run, ShardContext& context, Batch& batch) {
  batch = batches_.get(run, context.shard, 0, keep_batches_);
  for (at::Tensor& tensor : batch.tensors) tensor = here(tensor);
  batch.weight = here(batch.weight);
  expand_resident(batch);
  context.batch_ = &batch;
}

// During capture the batch and the inputs are those of the staging buffer, at fixed addresses; the batch comes first.
void ShardRunner::use_staging(const Phase& phase, ShardContext& context, int index, Batch& batch) {
  context.key_on_device_ = staging_->key(index);
  context.loss_scale_tensor_ = staging_->loss_scale();
  context.inputs_ = staging_->tensors(index);
  if (!phase.batches) return;
  const auto weight = context.inputs_.begin() + static_cast<int64_t>(batch.tensors.size());
  batch.tensors.assign(context.inputs_.begin(), weight);
  batch.weight = *weight;
  context.inputs_.erase(context.inputs_.begin(), weight + 1);
  expand_resident(batch);
}

// What a captured shard will find in the staging buffer, from the host.
std::vector<at::Tensor> ShardRunner::staged_inputs(const PhaseRun& run, ShardContext& context, const Batch* batch) {
  context.batch_ = batch;
  std::vector<at::Tensor> all;
  if (batch) {
    all = batch->tensors;
    all.push_back(batch->weight);
  }
  for (at::Tensor& tensor : recipe_.inputs(*run.phase, context)) all.push_back(std::move(tensor));
  return all;
}

void ShardRunner::set_layers(const PhaseRun& run, const ShardGroup& group, const Batch& batch) {
  const Phase& phase = *run.phase;
  MicroBatch& norm = scratch(group.first).norm;
  norm = {.training = phase.gradients,
          .share = 1.0 / static_cast<double>(state_.shards() * micro_batches(phase)),
          .real = 1};
  if (phase.batches) {
    norm.share = static_cast<double>(batch.slice.real) / group.count / static_cast<double>(batch.slice.real_in_update);
    norm.real = static_cast<double>(batch.slice.real) / static_cast<double>(batch.slice.samples.size());
  }
  LayerContext& layers = state_.layers();
  static_cast<MicroBatch&>(layers) = norm;
  layers.shards = group.count;
  layers.sums = phase.gradients ? scratch(group.first).tree.get() : nullptr;
}

// ---- contexts ----

ShardContext ShardRunner::bare_context(const PhaseRun& run, int shard) {
  ShardContext context;
  context.step = run.step;
  context.shard = shard;
  context.shards = state_.shards();
  context.seed_ = state_.seed();
  context.accumulation_ = static_cast<uint64_t>(settings_.accumulation);
  context.loss_scale_ = update_.loss_scale();
  context.state_ = &state_;
  context.observer_ = observer_;
  context.inbox_ = &combine_->inbox(shard);
  if (AllToAll* mail = this->mail(run.index)) context.outgoing_rows_ = mail->outgoing(shard - mine_.first);
  if (AllToAll* mail = run.set || run.index == 0 ? nullptr : this->mail(run.index - 1)) {
    static const Inbox none;  // between workers rows travel as messages
    context.incoming_rows_ = mail->incoming(shard - mine_.first);
    context.inbox_ = &none;
  }
  return context;
}

void ShardRunner::reset_scratch(const PhaseRun& run, int index) {
  const ContributionLayout layout = layout_of(*run.phase, run.last);
  ShardScratch& scratch = this->scratch(index);
  scratch.floats.assign(static_cast<size_t>(run.phase->floats), 0);
  scratch.counts.assign(static_cast<size_t>(layout.counts), 0);
  scratch.maxima.assign(static_cast<size_t>(layout.maxima), 0);
  scratch.messages.clear();
  if (run.last) scratch.maxima.back() = run.request;
}

ShardContext ShardRunner::context_of(const PhaseRun& run, int index) {
  reset_scratch(run, index);
  ShardScratch& scratch = this->scratch(index);
  ShardContext context = bare_context(run, order_[static_cast<size_t>(index)]);
  context.floats = scratch.floats;
  context.counts = scratch.counts;
  context.maxima = std::span(scratch.maxima).first(static_cast<size_t>(run.phase->maxima));
  if (run.set) {
    context.training_ = false;
    const std::span<int64_t> behind = std::span(scratch.counts).subspan(static_cast<size_t>(run.set->counts));
    const auto words = static_cast<size_t>(run.set->sums) * kSumWords;
    context.sum_words_ = behind.first(words);
    context.gathered_ = behind.subspan(words);
    context.rows_in_pass_ = settings_.shards * settings_.micro_batch_size();
  }
  return context;
}

// ---- results ----

double ShardRunner::wait() {
  const double begin = monotonic_seconds();
  device_.wait();
  const double seconds = monotonic_seconds() - begin;
  gpu_seconds_ += gpu_ ? seconds : 0;
  return seconds;
}

void ShardRunner::read_sums(const PhaseRun& run) {
  const Phase& phase = *run.phase;
  for (int index = 0; index < count(); ++index) {
    const std::span<const int64_t> counted = sums(run).counts(index);
    for (size_t k = 0; k < counted.size(); ++k) scratch(index).counts[k] += counted[k];
    const int64_t bad = phase.gradients && state_.shards() > 1 ? sums(run).bad(index) : -1;
    if (bad >= 0)
      scratch(index).maxima[static_cast<size_t>(phase.maxima)] =
          nan_flag(order_[static_cast<size_t>(index)], state_.tensor_at(bad));
  }
}

void ShardRunner::add_sums(const PhaseRun& run) {
  for (int index = 0; index < count(); ++index) {
    ShardScratch& scratch = this->scratch(index);
    combine_->add(order_[static_cast<size_t>(index)],
                  {{}, scratch.counts, scratch.maxima, std::exchange(scratch.messages, {})});
  }
}

Total ShardRunner::finish(const PhaseRun& run) {
  if (observer_) observer_->combine_begins();
  const Total total = combine_->finish();
  if (AllToAll* mail = this->mail(run.index); mail && !mail->is_local())
    for (int shard = mine_.first; shard < mine_.last; ++shard)
      mail->receive(shard - mine_.first, combine_->inbox(shard).messages());
  if (observer_) observer_->combine_ends();
  ++runs_[run.index];
  return total;
}

// Without gradient and batch-norm statistics.
std::span<const float> ShardRunner::floats_of(const PhaseRun& run, const Total& total) {
  const size_t floats = static_cast<size_t>(run.phase->floats);
  recipe_floats_.resize(floats);
  device_.to_host(recipe_floats_.data(), total.floats.data() + total.floats.size() - floats, floats * sizeof(float));
  return recipe_floats_;
}

void ShardRunner::report_all_ended() {
  if (!observer_) return;
  for (size_t i = 0; i < order_.size(); ++i) {
    if (i > 0) observer_->shard_begins(order_[i]);
    observer_->shard_ends(order_[i]);
  }
}

// ---- ATen's generator ----

std::string ShardRunner::generator_state() { return aten_generator_state(); }

// A recipe that draws from it would still train, and depend on the order of visits.
void ShardRunner::check_generator(const Phase& phase, const std::string& before) {
  if (aten_generator_state() == before) return;
  throw ConfigError(fmt::format("the recipe drew random numbers from ATen's generator in phase '{}'", phase.name),
                    "they would depend on the order in which shards are visited, and the result on the machines",
                    "draw from context.random(site): tandem::dropout (nn/dropout.h), kernels/cpu/random_fill.h");
}

}  // namespace tandem
