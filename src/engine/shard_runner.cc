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
      runs_(phases_.size()) {}

void ShardRunner::assign(ShardRange mine, std::vector<int> order, Combine& combine) {
  mine_ = mine;
  order_ = std::move(order);
  combine_ = &combine;
  scratch_.resize(order_.size());
  for (ShardScratch& scratch : scratch_) scratch = {};
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

// Runs one shard's phase, one micro-batch after the other.
std::span<const float> ShardRunner::run_shard(const PhaseRun& run, int index, int buffer) {
  const Phase& phase = *run.phase;
  shard_begins(index);
  const std::span<float> vector = vector_of(run, index, buffer), tail = vector.last(static_cast<size_t>(phase.floats));
  device_.zero(vector.data(), vector.size_bytes());
  ShardContext context = context_of(run, index);
  if (phase.gradients) context.gradient_ = vector.first(static_cast<size_t>(state_.parameter_floats()));
  context.float_sums_ = sums(run).floats(tail);
  context.count_sums_ = sums(run).counts_to(index);
  for (int64_t micro_batch = 0; micro_batch < micro_batches(phase); ++micro_batch)
    run_micro_batch(run, context, index, micro_batch, vector);

  put_floats(run, scratch(index).floats, tail);
  // Each shard raises its flag before the sum, where NaN can still be traced to its shard and tensor. A lone shard's
  // vector is the total itself: there the norm finds it (update.cc), and one pass is saved.
  if (phase.gradients && state_.shards() > 1)
    sums(run).find_nonfinite(index,
                             vector.first(static_cast<size_t>(state_.parameter_floats() + state_.statistic_floats())));
  take_messages(context, index);
  return vector;
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

void ShardRunner::run_micro_batch(const PhaseRun& run, ShardContext& context, int index, int64_t micro_batch,
                                  std::span<float> vector) {
  const Phase& phase = *run.phase;
  context.micro_batch = micro_batch;
  Batch batch;
  if (phase.batches) {
    batch = batches_.get(run, context.shard, micro_batch, keep_batches_);
    context.batch_ = &batch;
  }
  if (staging_)
    use_staging(phase, context, static_cast<int>(index * micro_batches(phase) + micro_batch), batch);
  else
    upload(run, context, batch);
  set_norm(phase, index, batch);
  if (phase.one_backward) context.backwards_left_ = 1;
  if (phase.one_backward && micro_batch + 1 == micro_batches(phase) && combine_->wants_ready(context.shard)) {
    if (!gradient_ready_) gradient_ready_ = std::make_unique<GradientReady>(state_);
    gradient_ready_->begin([this, shard = context.shard, vector](int64_t first, int64_t last) {
      combine_->ready(shard, vector, first, last);
    });
  }
  struct EndReady {  // however run() ends: the hooks report for this backward() alone
    GradientReady* ready;
    ~EndReady() {
      if (ready) ready->end();
    }
  } end_ready{gradient_ready_.get()};
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

void ShardRunner::set_norm(const Phase& phase, int index, const Batch& batch) {
  BatchNormMicroBatch& norm = scratch(index).norm;
  norm = {.training = phase.gradients,
          .share = 1.0 / static_cast<double>(state_.shards() * micro_batches(phase)),
          .real = 1};
  if (phase.batches) {
    norm.share = static_cast<double>(batch.slice.real) / static_cast<double>(batch.slice.real_in_update);
    norm.real = static_cast<double>(batch.slice.real) / static_cast<double>(batch.slice.samples.size());
  }
  static_cast<BatchNormMicroBatch&>(state_.batch_norm()) = norm;
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

ShardContext ShardRunner::context_of(const PhaseRun& run, int index) {
  const Phase& phase = *run.phase;
  const ContributionLayout layout = layout_of(phase, run.last);
  ShardScratch& scratch = this->scratch(index);
  scratch.floats.assign(static_cast<size_t>(phase.floats), 0);
  scratch.counts.assign(static_cast<size_t>(layout.counts), 0);
  scratch.maxima.assign(static_cast<size_t>(layout.maxima), 0);
  scratch.messages.clear();
  if (run.last) scratch.maxima.back() = run.request;
  ShardContext context = bare_context(run, order_[static_cast<size_t>(index)]);
  context.floats = scratch.floats;
  context.counts = scratch.counts;
  context.maxima = std::span(scratch.maxima).first(static_cast<size_t>(phase.maxima));
  if (run.set) {
    context.training_ = false;
    context.sum_words_ = std::span(scratch.counts).subspan(static_cast<size_t>(run.set->counts));
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
