#include "engine/train_loop.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/clock.h"
#include "base/cores.h"
#include "base/errors.h"
#include "engine/determinism.h"
#include "engine/gpu_device.h"
#include "engine/precision.h"
#include "engine/slow_worker.h"
#include "kernels/cpu/sums.h"
#include "kernels/device.h"
#include "nn/here.h"
#include "nn/sites.h"
#include "reduce/gpu_combine.h"

namespace tandem {
namespace {

// A recipe that draws from ATen's generator would still train, and depend on the order of visits. Checked in the
// first two steps of a process.
[[noreturn]] void refuse_aten_generator(const Phase& phase) {
  throw ConfigError(fmt::format("the recipe drew random numbers from ATen's generator in phase '{}'", phase.name),
                    "they would depend on the order in which shards are visited, and the result on the machines",
                    "draw from context.random(site): tandem::dropout (nn/dropout.h), kernels/cpu/random_fill.h");
}

}  // namespace

// ---- one step: the whole engine on one screen ----

StepRecord TrainLoop::step() {
  if (gpu() && has_fused_step()) return run_fused_step();
  StepRecord record;
  note_.clear();
  const double begin = monotonic_seconds();
  update_.begin_step(steps_done_);
  for (const Phase& phase : phases_) {
    const double phase_begin = monotonic_seconds();
    const Total total = run_and_combine(phase);  // every shard's contribution; the same bits on every worker

    StepContext context{.step = steps_done_, .state = &state_, .record = &record};
    if (phase.gradients) {
      const int64_t flag = total.maxima[phase.maxima];
      if (gpu() && !updated_by_) launch_update_graph(phase, total, flag);
      const UpdateResult result = updated_by_ ? update_.settle(total.floats, flag, updated_by_->outputs.decision())
                                              : update_.apply(total.floats, flag);
      fill_record(result, record);
      context.skipped = result.skipped;
    }
    // The recipe sees its own part of the total, without gradient, batch-norm statistics, NaN flag and request.
    const size_t engine_floats = phase.gradients ? state_.parameter_floats() + state_.statistic_floats() : 0;
    recipe_floats_.resize(total.floats.size() - engine_floats);
    if (updated_by_)
      std::ranges::copy(updated_by_->outputs.floats(), recipe_floats_.begin());
    else
      device().to_host(recipe_floats_.data(), total.floats.data() + engine_floats,
                       recipe_floats_.size() * sizeof(float));
    recipe_->apply(phase, {recipe_floats_, total.counts, total.maxima.first(phase.maxima)}, context);
    if (&phase == &phases_.back()) agreed_request_ = total.maxima.back();
    if (observer_) observer_->applied();
    record.phase_seconds.emplace_back(phase.name, monotonic_seconds() - phase_begin);
  }
  combine_->clear_inboxes();
  end_step(record, begin);
  return record;
}

Total TrainLoop::run_and_combine(const Phase& phase) {
  while (true) {
    try {
      if (observer_) observer_->phase_begins(steps_done_, static_cast<int>(index_of(phase)));
      requested_ = request_ ? request_() : 0;
      phase_sequence_ = combine_->next_sequence();
      combine_->begin(layout_of(phase));
      updated_by_ = nullptr;
      if (gpu() && has_step_graph(phase)) return launch_step_graph(phase);
      if (phase.gradients && lockstep())
        run_in_lockstep(phase);  // as run_shards, but all shards side by side, with an all-reduce at every batch norm
      else
        run_shards(phase);
      if (observer_) observer_->combine_begins();
      const Total total = combine_->finish();
      if (observer_) observer_->combine_ends();
      return total;
    } catch (const MembersChanged&) {
      // Nothing was applied: the phase is run again with other members, or enter_generation_() throws and the worker
      // goes back to a snapshot.
      if (!enter_generation_) throw;
      enter_generation_();
    }
  }
}

void TrainLoop::run_shards(const Phase& phase) {
  state_.use_contribution(0);
  if (gpu()) return run_on_gpu(phase);
  if (run_batched(phase)) return;
  for (int shard : visit_order_) {
    Contribution contribution = run_shard(phase, shard, 0, 0);
    contribution.stays = shard == visit_order_.back();  // until finish() returns: a transport need not copy it
    combine_->add(shard, std::move(contribution));
  }
}

// All shards of this worker in one pass of the recipe; their gradients come as the sums of whole subtrees.
bool TrainLoop::run_batched(const Phase& phase) {
  if (!phase.batched || mine_.size() < 2 || !std::ranges::is_sorted(visit_order_)) return false;
  const std::vector<int> nodes = combine_->subtrees();
  if (phase.gradients && (nodes.empty() || settings_.accumulation > 1 || state_.statistic_floats() > 0)) return false;
  if (observer_) observer_->shard_begins(visit_order_.front());
  const ContributionLayout layout = layout_of(phase);
  batched_.clear();
  for (size_t i = 0; i < visit_order_.size(); ++i) {
    batched_.push_back(context_of(phase, visit_order_[i], static_cast<int>(i)));
    if (&phase == &phases_.back()) scratch_[i].maxima.back() = requested_;
  }
  const SumTree tree(state_.shards());
  std::vector<Subtree> sums;
  for (size_t k = 0; phase.gradients && k < nodes.size(); ++k) {
    const SumTree::Node& node = tree.node(nodes[k]);
    sums.push_back({node.first - mine_.first, node.last - mine_.first, tree.merges(nodes[k]),
                    state_.contribution(static_cast<int>(k)).first(state_.parameter_floats())});
  }
  const bool look = steps_here_ < 2;
  const std::string generator = look ? aten_generator_state() : "";
  {
    PrecisionScope precision(settings_.precision);
    recipe_->run_batched(phase, batched_, sums);
  }
  if (look && aten_generator_state() != generator) refuse_aten_generator(phase);
  for (const Subtree& sum : sums)
    if (device().first_nonfinite(sum.gradient.data(), static_cast<int64_t>(sum.gradient.size())) >= 0)
      return false;  // one by one they show which shard it was
  report_shards_done();

  for (size_t i = 0; i < batched_.size(); ++i)
    combine_->add(visit_order_[i], {.floats = phase.gradients ? std::span<const float>() : scratch_[i].floats,
                                    .counts = scratch_[i].counts,
                                    .maxima = scratch_[i].maxima,
                                    .messages = std::move(batched_[i].outgoing_)});
  for (size_t k = 0; k < sums.size(); ++k) {
    const std::span<float> vector = state_.contribution(static_cast<int>(k)).first(layout.floats);
    std::vector<const float*> tails;
    for (int i = sums[k].first; i < sums[k].last; ++i) tails.push_back(scratch_[i].floats.data());
    add_along_tree(vector.last(phase.floats).data(), tails, sums[k].merges, phase.floats);
    combine_->add_partial(nodes[k], vector, /*stays=*/true);
  }
  return true;
}

void TrainLoop::run_in_lockstep(const Phase& phase) {
  std::vector<Contribution> contributions(visit_order_.size());
  if (gpu()) gpu_phase(phase).outputs.queue_clear();
  state_.batch_norm().all_reduce = [this](std::span<double> values) { lockstep_.all_reduce(values); };
  lockstep_.run(
      visit_order_, [&](int i) { contributions[i] = run_shard(phase, visit_order_[i], i, i); },
      [&](int i) {
        state_.use_contribution(i);
        static_cast<BatchNormMicroBatch&>(state_.batch_norm()) = scratch_[i].norm;
      });
  state_.batch_norm().all_reduce = nullptr;
  for (size_t i = 0; i < visit_order_.size(); ++i) {
    contributions[i].stays = true;  // each has a buffer of its own
    if (gpu())
      device_combine().add_floats(visit_order_[i], contributions[i].floats, true);
    else
      combine_->add(visit_order_[i], std::move(contributions[i]));
  }
  if (gpu()) add_host_sums(phase);
}

// Runs one shard's phase, one micro-batch after the other.
Contribution TrainLoop::run_shard(const Phase& phase, int shard, int index, int buffer) {
  if (observer_ && !capturing_) observer_->shard_begins(shard);
  ShardScratch& scratch = scratch_[index];
  const std::span<float> vector = zeroed_vector(phase, index, buffer), tail = vector.last(phase.floats);
  ShardContext context = context_of(phase, shard, index);
  if (phase.gradients) context.gradient_ = vector.first(state_.parameter_floats());
  if (gpu()) {
    if (phase.floats > 0) context.float_sums_ = at::from_blob(tail.data(), {phase.floats}, here());
    if (phase.counts > 0) context.count_sums_ = gpu_phase(phase).outputs.counts_on_gpu(index);
  }
  const int64_t micro_batches = phase.gradients ? settings_.accumulation : 1;
  for (int64_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch)
    run_micro_batch(phase, context, index, micro_batch, vector);

  if (!gpu()) {
    std::ranges::copy(scratch.floats, tail.begin());
  } else if (std::ranges::any_of(scratch.floats, [](float x) { return x != 0; })) {
    if (capturing_) throw std::runtime_error("its run() adds up context.floats on the host; context.add() would do");
    context.float_sums_.add_(here(at::from_blob(scratch.floats.data(), {phase.floats}, at::kFloat)));
  }
  flag_nonfinite(phase, shard, index, vector);
  if (&phase == &phases_.back()) scratch.maxima.back() = requested_;
  if (gpu()) scratch.messages = std::move(context.outgoing_);
  if (observer_ && (!gpu() || (phase.gradients && lockstep()))) observer_->shard_ends(shard);
  return {vector, scratch.counts, scratch.maxima, std::move(context.outgoing_)};
}

// What is summed: the gradient with its tail, or the recipe's floats alone.
std::span<float> TrainLoop::zeroed_vector(const Phase& phase, int index, int buffer) {
  const int64_t floats = layout_of(phase).floats;
  std::span<float> vector;
  if (phase.gradients) {
    vector = state_.contribution(buffer).first(floats);
  } else {
    at::Tensor& own = scratch_[index].vector;
    if (!own.defined() || own.numel() < floats) own = at::empty({floats}, here());
    vector = {own.data_ptr<float>(), static_cast<size_t>(floats)};
  }
  device().zero(vector.data(), vector.size_bytes());
  return vector;
}

void TrainLoop::run_micro_batch(const Phase& phase, ShardContext& context, int index, int64_t micro_batch,
                                std::span<float> vector) {
  const int64_t micro_batches = phase.gradients ? settings_.accumulation : 1;
  const int shard = context.shard;
  context.micro_batch = micro_batch;
  Batch batch;
  if (validating_) {
    batch = load_validation(shard);
    context.batch_ = &batch;
  } else if (phase.batches) {
    batch = gpu() ? loaded_batch({steps_done_, shard, micro_batch}) : load({steps_done_, shard, micro_batch});
    context.batch_ = &batch;
  }
  if (capturing_) {
    use_staged_inputs(phase, context, static_cast<int>(index * micro_batches + micro_batch), batch);
  } else {
    for (at::Tensor& tensor : batch.tensors) tensor = here(tensor);
    if (phase.batches) batch.weight = here(batch.weight);
    if (!validating_) context.inputs_ = recipe_->inputs(phase, context);
    for (at::Tensor& tensor : context.inputs_) tensor = here(tensor);
  }
  BatchNormMicroBatch& norm = scratch_[index].norm;
  norm = {.training = phase.gradients, .share = 1.0 / static_cast<double>(state_.shards() * micro_batches), .real = 1};
  if (phase.batches) {
    norm.share = static_cast<double>(batch.slice.real) / static_cast<double>(batch.slice.real_in_update);
    norm.real = static_cast<double>(batch.slice.real) / static_cast<double>(batch.slice.samples.size());
  }
  static_cast<BatchNormMicroBatch&>(state_.batch_norm()) = norm;
  if (phase.one_backward) context.backwards_left_ = 1;
  if (phase.one_backward && micro_batch + 1 == micro_batches && combine_->wants_ready(shard)) {
    if (!gradient_ready_) gradient_ready_ = std::make_unique<GradientReady>(state_);
    gradient_ready_->begin(
        [this, shard, vector](int64_t first, int64_t last) { combine_->ready(shard, vector, first, last); });
  }
  struct EndReady {  // however run() ends: the hooks report for this backward() alone
    GradientReady* ready;
    ~EndReady() {
      if (ready) ready->end();
    }
  } end_ready{gradient_ready_.get()};
  const bool look = steps_here_ < 2 && !capturing_;
  const std::string generator = look ? aten_generator_state() : "";
  {
    PrecisionScope precision(settings_.precision);
    if (validating_)
      recipe_->validate(*validating_, context);
    else
      recipe_->run(phase, context);
  }
  if (look && aten_generator_state() != generator) refuse_aten_generator(phase);
}

// During capture the batch and the inputs are those of the staging buffer, at fixed addresses; the batch comes first.
void TrainLoop::use_staged_inputs(const Phase& phase, ShardContext& context, int index, Batch& batch) {
  const InputStaging& staging = *gpu_phase(phase).staging;
  context.key_on_device_ = staging.key(index);
  context.loss_scale_tensor_ = staging.loss_scale();
  context.inputs_ = staging.tensors(index);
  if (!phase.batches) return;
  const auto weight = context.inputs_.begin() + static_cast<int64_t>(batch.tensors.size());
  batch.tensors.assign(context.inputs_.begin(), weight);
  batch.weight = *weight;
  context.inputs_.erase(context.inputs_.begin(), weight + 1);
}

// Each shard raises its flag before the sum, where NaN can still be traced to its shard and tensor. A lone shard's
// vector is the total itself: there the norm finds it (update.cc), and one pass is saved.
void TrainLoop::flag_nonfinite(const Phase& phase, int shard, int index, std::span<const float> vector) {
  if (!phase.gradients || state_.shards() == 1) return;
  const int64_t checked = state_.parameter_floats() + state_.statistic_floats();
  if (gpu())
    device().find_nonfinite(gpu_phase(phase).outputs.bad_on_gpu(index), vector.data(), checked);
  else if (const int64_t bad = device().first_nonfinite(vector.data(), checked); bad >= 0)
    scratch_[index].maxima[phase.maxima] = nan_flag(shard, state_.tensor_at(bad));
}

ShardContext TrainLoop::context_of(int shard) {
  ShardContext context;
  context.step = steps_done_;
  context.shard = shard;
  context.shards = state_.shards();
  context.seed_ = state_.seed();
  context.accumulation_ = static_cast<uint64_t>(settings_.accumulation);
  context.loss_scale_ = update_.loss_scale();
  context.state_ = &state_;
  context.inbox_ = &combine_->inbox(shard);
  return context;
}

ShardContext TrainLoop::context_of(const Phase& phase, int shard, int index) {
  const ContributionLayout layout = layout_of(phase);
  ShardScratch& scratch = scratch_[index];
  scratch.floats.assign(phase.floats, 0);
  scratch.counts.assign(layout.counts, 0);
  scratch.maxima.assign(layout.maxima, 0);
  ShardContext context = context_of(shard);
  context.floats = scratch.floats;
  context.counts = scratch.counts;
  context.maxima = std::span(scratch.maxima).first(phase.maxima);
  if (validating_) {
    context.training_ = false;
    context.sum_words_ = std::span(scratch.counts).subspan(static_cast<size_t>(validating_->counts));
  }
  return context;
}

void TrainLoop::fill_record(const UpdateResult& result, StepRecord& record) {
  record.skipped = result.skipped;
  record.learning_rate = result.learning_rate;
  record.grad_norm = result.grad_norm;
  record.loss_scale = result.loss_scale;
  if (!result.note.empty()) note_ = result.note;
}

void TrainLoop::end_step(StepRecord& record, double begin) {
  if (steps_here_ < 2 || steps_done_ % 100 == 0) check_determinism();
  record.step = ++steps_done_;
  ++steps_here_;
  record.seconds = monotonic_seconds() - begin;
}

// ---- around it ----

TrainLoop::TrainLoop(const RecipeSettings& settings, std::unique_ptr<Recipe> recipe, const ShardPlan& plan)
    : TrainLoop(settings, std::move(recipe), {0, static_cast<int>(settings.shards)},
                for_this_device(settings.shards, {0, static_cast<int>(settings.shards)},
                                std::make_unique<LocalCombine>(static_cast<int>(settings.shards), plan.ranges()))) {}

TrainLoop::TrainLoop(const RecipeSettings& settings, std::unique_ptr<Recipe> recipe, ShardRange mine,
                     std::unique_ptr<Combine> combine)
    : settings_(settings),
      recipe_(std::move(recipe)),
      mine_(mine),
      visit_order_(mine.size()),
      state_([&] {
        JobState state(static_cast<int>(settings.shards), static_cast<uint64_t>(settings.seed), mine);
        recipe_->build(state);
        int64_t floats = 0;
        for (const Phase& phase : recipe_->phases())
          if (phase.gradients) floats = std::max<int64_t>(floats, phase.floats);
        state.seal(floats, optimizer_states(settings.optimizer));
        return state;
      }()),
      phases_(recipe_->phases()),
      update_(settings, state_, settings.batch_size),
      combine_(std::move(combine)),
      lockstep_([this](auto shards, auto values) { combine_->all_reduce(shards, values); }),
      scratch_(mine.size()) {
  std::iota(visit_order_.begin(), visit_order_.end(), mine_.first);
  if (phases_.back().exchange)
    throw std::logic_error("the last phase of a step can't send messages: nobody would read them");
  if (recipe_->dataset()) {
    sampler_.emplace(recipe_->dataset()->size(), settings.shards, settings.accumulation, settings.micro_batch_size(),
                     settings.seed);
    maker_ = std::make_unique<BatchMaker>(*recipe_->dataset(), state_.seed(), settings.micro_batch_size());
  }
  validation_ = std::make_unique<Validation>(settings, *recipe_);
  for (const ValidationSet& set : validation_->sets())
    validation_makers_.push_back(std::make_unique<BatchMaker>(*set.data, state_.seed(), settings.micro_batch_size()));
  start_loader();
  begin_shards();
}

std::unique_ptr<Combine> for_this_device(int64_t shards, ShardRange mine, std::unique_ptr<Combine> combine) {
  if (!gpu()) return combine;
  return std::make_unique<GpuCombine>(static_cast<int>(shards), mine, std::move(combine), device());
}

void TrainLoop::start_loader() {
  if (!recipe_->dataset()) return;
  loader_.reset();  // its threads ask for this loop's order of visits
  const LoaderSize size =
      loader_size(settings_.loader.threads, settings_.loader.prefetch, gpu() != nullptr, worker_cores());
  loader_ =
      std::make_unique<Loader>([this](const LoadKey& key) { return making_.measured([&] { return make_batch(key); }); },
                               [this](const LoadKey& key) { return next_batch(key); }, size.threads, size.prefetch,
                               settings_.loader.prefetch < 0 ? kMostLoadedAhead : SIZE_MAX);
}

void TrainLoop::reassign(ShardRange mine, std::unique_ptr<Combine> combine) {
  loader_.reset();
  validation_loader_.reset();
  mine_ = mine;
  visit_order_.resize(static_cast<size_t>(mine.size()));
  std::iota(visit_order_.begin(), visit_order_.end(), mine_.first);
  scratch_.resize(static_cast<size_t>(mine.size()));
  if (!gpu_phases_.empty() || fused_) {
    gpu_phases_.clear();
    fused_.reset();
    gpu()->trim();
  }
  looked_for_fused_ = false;
  loaded_.clear();
  state_.own(mine);
  combine_ = std::move(combine);
  start_loader();
}

void TrainLoop::begin_shards() {
  for (int shard = mine_.first; shard < mine_.last; ++shard) {
    ShardContext context;
    context.shard = shard;
    context.shards = static_cast<int>(settings_.shards);
    context.seed_ = state_.seed();
    context.state_ = &state_;
    recipe_->init_shard(context);
  }
}

ContributionLayout TrainLoop::largest_layout() const {
  ContributionLayout largest;
  std::vector<const Phase*> all;
  for (const Phase& phase : phases_) all.push_back(&phase);
  for (const Phase& phase : validation_->phases()) all.push_back(&phase);
  for (const Phase* phase : all) {
    const ContributionLayout layout = layout_of(*phase);
    largest.floats = std::max(largest.floats, layout.floats);
    largest.counts = std::max(largest.counts, layout.counts);
    largest.maxima = std::max(largest.maxima, layout.maxima);
    largest.exchange = largest.exchange || layout.exchange;
  }
  return largest;
}

bool TrainLoop::stateful() const { return state_.has_shard_state() || largest_layout().exchange; }

ContributionLayout TrainLoop::layout_of(const Phase& phase) const {
  ContributionLayout layout{
      .floats = phase.floats, .counts = phase.counts, .maxima = phase.maxima, .exchange = phase.exchange};
  if (phase.gradients) {
    layout.floats += state_.parameter_floats() + state_.statistic_floats();
    layout.maxima += 1;  // the NaN flag
  }
  if (&phase == &phases_.back()) layout.maxima += 1;  // the request
  return layout;
}

Batch TrainLoop::load(const LoadKey& key) {
  const double begin = monotonic_seconds();
  Batch batch = loader_->get(key);
  load_seconds_ += monotonic_seconds() - begin;
  return batch;
}

Batch TrainLoop::make_batch(const LoadKey& key) const {
  delay_loader_for_tests();
  const RandomKey random{.seed = state_.seed(),
                         .step = static_cast<uint64_t>(key.step * settings_.accumulation + key.micro_batch),
                         .shard = static_cast<uint32_t>(key.shard),
                         .site = kAugmentation};
  return maker_->make(sampler_->slice(key.step, key.shard, key.micro_batch), random);
}

LoadKey TrainLoop::next_batch(const LoadKey& key) const {
  const auto here = std::find(visit_order_.begin(), visit_order_.end(), key.shard);
  const bool last_shard = here + 1 == visit_order_.end(),
             last_micro_batch = key.micro_batch + 1 == settings_.accumulation;
  if (lockstep()) {  // all shards run micro-batch 0, then all run 1
    if (!last_shard) return {key.step, *(here + 1), key.micro_batch};
    return last_micro_batch ? LoadKey{key.step + 1, visit_order_.front(), 0}
                            : LoadKey{key.step, visit_order_.front(), key.micro_batch + 1};
  }
  if (!last_micro_batch) return {key.step, key.shard, key.micro_batch + 1};
  return last_shard ? LoadKey{key.step + 1, visit_order_.front(), 0} : LoadKey{key.step, *(here + 1), 0};
}

}  // namespace tandem
