#include "engine/train_loop.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/clock.h"
#include "engine/determinism.h"
#include "engine/gpu_device.h"
#include "reduce/gpu_combine.h"

namespace tandem {

// ---- one step: the whole engine on one screen ----

StepRecord TrainLoop::step() {
  StepRecord record;
  note_ = std::exchange(later_, "");
  const double begin = monotonic_seconds();
  update_.begin_step(steps_done_);
  for (const PhaseRun& run : phase_runs()) {
    const double phase_begin = monotonic_seconds();
    const auto result = run_and_combine(run);  // every shard's contribution; the same bits on every worker
    if (!result) return step();
    StepContext context{.step = steps_done_, .state = &state_, .record = &record};
    Executor& executor = executor_of(run);
    executor.before_update(run, *result, context);
    if (run.phase->gradients) {
      const UpdateResult update = update_weights(run, *result);
      fill_record(update, record);
      context.skipped = update.skipped;
    }
    executor.apply(run, *result, context);
    if (run.last) agreed_request_ = result->total.maxima.back();
    if (observer_) observer_->applied();
    record.phase_seconds.emplace_back(run.all ? "step" : run.phase->name, monotonic_seconds() - phase_begin);
  }
  shards_->clear_inboxes();
  end_step(record, begin);
  return record;
}

std::optional<PhaseResult> TrainLoop::run_and_combine(PhaseRun run) {
  while (true) {
    try {
      if (observer_) observer_->phase_begins(steps_done_, static_cast<int>(run.index));
      batches_->begin(run, [this] {
        if (observer_) observer_->alive();
      });
      run.request = request_ ? request_() : 0;
      phase_sequence_ = combine_->next_sequence();
      return executor_of(run).run(run);
    } catch (const MembersChanged&) {
      // Nothing was applied: the phase is run again with other members, or enter_generation_() throws and the worker
      // goes back to a snapshot. A fused step is begun again: others may hold shards now.
      if (!enter_generation_) throw;
      enter_generation_();
      if (run.all) return std::nullopt;
    }
  }
}

UpdateResult TrainLoop::update_weights(const PhaseRun& run, const PhaseResult& result) {
  const int64_t flag = run.all ? 0 : result.total.maxima[static_cast<size_t>(run.phase->maxima)];
  return result.applied ? update_.settle(result.total.floats, flag, *result.applied)
                        : update_.apply(result.total.floats, flag);
}

std::vector<PhaseRun> TrainLoop::phase_runs() {
  const size_t last = phases_.size() - 1;
  if (fused()) return {{.phase = &phases_[last], .index = last, .step = steps_done_, .last = true, .all = true}};
  std::vector<PhaseRun> runs;
  for (size_t i = 0; i < phases_.size(); ++i)
    if (steps_done_ % phases_[i].every == 0)
      runs.push_back({.phase = &phases_[i], .index = i, .step = steps_done_, .last = i == last});
  return runs;
}

void TrainLoop::fill_record(const UpdateResult& result, StepRecord& record) {
  record.skipped = result.skipped;
  record.learning_rate = result.learning_rate;
  record.grad_norm = result.grad_norm;
  record.loss_scale = result.loss_scale;
  if (!result.note.empty()) note_ += (note_.empty() ? "" : "; ") + result.note;
}

void TrainLoop::end_step(StepRecord& record, double begin) {
  if (steps_here_ < 2 || steps_done_ % 100 == 0) check_determinism();
  record.step = ++steps_done_;
  ++steps_here_;
  record.seconds = monotonic_seconds() - begin;
}

// ---- who runs a phase ----

Executor& TrainLoop::executor_of(const PhaseRun& run) {
  if (run.all) return *fused();
  std::unique_ptr<Executor>& executor = executors_[run.index];
  if (!executor) executor = choose_executor(run);
  return *executor;
}

// Of the phases that train; all of them.
std::optional<int64_t> TrainLoop::equal_at() {
  std::optional<int64_t> all;
  for (size_t phase = 0; phase < std::min(phases_.size(), executors_.size()); ++phase)
    if (const auto one = executors_[phase] ? executors_[phase]->equal_at() : std::nullopt)
      all = all ? std::min(*all, *one) : one;
  if (all) equal_at_ = std::max(equal_at_.value_or(0), *all);
  return equal_at_;
}

std::unique_ptr<Executor> TrainLoop::choose_executor(const PhaseRun& run) {
  if (run.phase->gradients && lockstep()) return make_lockstep(*shards_);
  if (auto batched = make_batched(*shards_, run)) return batched;
  if (auto captured = make_captured(*shards_, run)) return captured;
  return make_serial(*shards_);
}

// Where others hold shards, once their GPUs and this one sum by themselves: all find that at the same step.
FusedExecutor* TrainLoop::fused() {
  DeviceCombine* const sums = combine_->as_device();
  if (looked_for_fused_ || !(shards_->holds_all() || (sums && sums->queues_steps()))) return fused_.get();
  looked_for_fused_ = true;
  fused_ = FusedExecutor::make(*shards_);
  return fused_.get();
}

void TrainLoop::measure_next(MeasureStep measure) {
  if (fused()) fused()->measure_next(std::move(measure));
}

// ---- validation ----

void TrainLoop::validate(StepRecord& record, bool scheduled) {
  const double begin = monotonic_seconds();
  struct End {  // however it ends
    TrainLoop& loop;
    ~End() {
      loop.validating_ = false;
      loop.batches_->end_validation();
      loop.state_.end_evaluation();
      if (gpu()) gpu()->trim();  // what it took is needed for training
    }
  } end{*this};
  state_.begin_evaluation();
  validating_ = true;
  at::NoGradGuard no_grad;
  validation_->begin();
  for (size_t set = 0; set < validation_->sets().size(); ++set)
    for (int64_t pass = 0; pass < validation_->passes(set); ++pass) {
      const auto result = run_and_combine({.phase = &validation_->phases()[set],
                                           .index = phases_.size() + set,
                                           .step = steps_done_,
                                           .set = &validation_->sets()[set],
                                           .set_index = set,
                                           .pass = pass});
      validation_->take(set, pass, result->total.counts);
    }
  for (auto& metric : validation_->finish(steps_done_, scheduled)) record.metrics.push_back(std::move(metric));
  record.phase_seconds.emplace_back("validate", monotonic_seconds() - begin);
}

void TrainLoop::validate_if_due(StepRecord& record, bool last_step) {
  if (validation_->every() == 0 || !(validation_->due(steps_done_) || last_step)) return;
  validate(record, validation_->due(steps_done_));
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
      validation_(std::make_unique<Validation>(settings, *recipe_)),
      batches_(std::make_unique<BatchSource>(settings, *recipe_, *validation_, state_.seed(), gpu())) {
  check_phases();
  std::vector<const Phase*> all;
  for (const Phase& phase : phases_) all.push_back(&phase);
  for (const Phase& phase : validation_->phases()) all.push_back(&phase);
  executors_.resize(all.size());
  shards_ = std::make_unique<ShardRunner>(settings, *recipe_, state_, update_, *batches_, std::move(all), gpu());
  shards_->on_note([this](const std::string& note) {  // once, however often members change
    if (reported_.insert(note).second) note_ += (note_.empty() ? "" : "; ") + note;
  });
  std::vector<int> order(static_cast<size_t>(mine.size()));
  std::iota(order.begin(), order.end(), mine.first);
  assign(mine, std::move(order));
  begin_shards();
}

void TrainLoop::check_phases() const {
  const auto sends = [](const Phase& phase) { return phase.exchange || phase.all_to_all > 0; };
  for (const Phase& phase : phases_) {
    if (phase.every < 1) throw std::logic_error("phase '" + phase.name + "' would never run");
    if (phase.exchange && phase.all_to_all > 0)
      throw std::logic_error("phase '" + phase.name + "' sends messages and rows to all: it can do one of them");
    if (phase.grouped && phase.gradients && phase.changes_state)
      throw std::logic_error("phase '" + phase.name +
                             "' runs several shards in one pass, has gradients and changes state: after a NaN its "
                             "shards run again one by one, which would change the state twice");
  }
  if (sends(phases_.back()))
    throw std::logic_error("the last phase of a step can't send messages: nobody would read them");
  if (phases_.back().every != 1)
    throw std::logic_error("the last phase of a step runs at every step: there all agree on what is asked for");
  for (size_t i = 0; i + 1 < phases_.size(); ++i)
    if (sends(phases_[i]) && phases_[i].every % phases_[i + 1].every != 0)
      throw std::logic_error("phase '" + phases_[i + 1].name + "' must run whenever '" + phases_[i].name +
                             "' sends to it");
}

std::unique_ptr<Combine> for_this_device(int64_t shards, ShardRange mine, std::unique_ptr<Combine> combine) {
  if (!gpu()) return combine;
  return std::make_unique<GpuCombine>(static_cast<int>(shards), mine, std::move(combine), gpu()->device());
}

void TrainLoop::assign(ShardRange mine, std::vector<int> order) {
  const bool ran = fused_ || std::ranges::any_of(executors_, [](const auto& executor) { return executor != nullptr; });
  equal_at();
  fused_.reset();
  looked_for_fused_ = false;
  for (auto& executor : executors_) executor.reset();
  batches_->visit(order, lockstep());
  shards_->assign(mine, std::move(order), *combine_);
  if (ran && gpu()) gpu()->trim();
}

void TrainLoop::reassign(ShardRange mine, std::unique_ptr<Combine> combine) {
  std::vector<int> order(static_cast<size_t>(mine.size()));
  std::iota(order.begin(), order.end(), mine.first);
  state_.own(mine);
  const std::unique_ptr<Combine> old = std::exchange(combine_, std::move(combine));  // executors may still point to it
  assign(mine, std::move(order));
}

void TrainLoop::visit_in_order(std::vector<int> shards) { assign(state_.mine(), std::move(shards)); }

void TrainLoop::watch(LoopObserver* observer) {
  observer_ = observer;
  shards_->watch(observer);
}

void TrainLoop::set_steps_done(int64_t steps) {
  steps_done_ = steps;
  if (equal_at_) equal_at_ = std::min(*equal_at_, steps);  // what follows is compared anew
  fused_.reset();
  looked_for_fused_ = false;
}

void TrainLoop::begin_shards() {
  for (int shard = state_.mine().first; shard < state_.mine().last; ++shard) {
    ShardContext context;
    context.shard = shard;
    context.shards = static_cast<int>(settings_.shards);
    context.seed_ = state_.seed();
    context.state_ = &state_;
    context.observer_ = observer_;
    recipe_->init_shard(context);
  }
}

ContributionLayout TrainLoop::largest_layout() const {
  ContributionLayout largest;
  const auto look_at = [&](const Phase& phase) {
    const ContributionLayout layout = shards_->layout_of(phase, &phase == &phases_.back());
    largest.floats = std::max(largest.floats, layout.floats);
    largest.counts = std::max(largest.counts, layout.counts);
    largest.maxima = std::max(largest.maxima, layout.maxima);
    largest.exchange = largest.exchange || layout.exchange;
  };
  for (const Phase& phase : phases_) look_at(phase);
  for (const Phase& phase : validation_->phases()) look_at(phase);
  return largest;
}

int64_t TrainLoop::longest_joined() const {
  int64_t longest = 0;
  for (const Phase& phase : phases_) longest = std::max(longest, phase.joined_floats);
  return longest;
}

bool TrainLoop::stateful() const { return state_.has_shard_state() || largest_layout().exchange; }

}  // namespace tandem
