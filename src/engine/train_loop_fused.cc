// engine/train_loop_fused.cc -- the part of TrainLoop that plays a recipe's whole step on a GPU (engine/recipe.h).
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/clock.h"
#include "engine/determinism.h"
#include "engine/gpu_device.h"
#include "engine/train_loop.h"
#include "kernels/device.h"
#include "nn/here.h"

namespace tandem {

struct TrainLoop::Whole {
  Whole(std::unique_ptr<FusedStep> s, int64_t floats)
      : steps(std::move(s)),
        order(sizeof(UpdateParams) + steps->order_bytes()),
        told(sizeof(UpdateDecision) + steps->told_bytes()),
        total(at::zeros({floats}, here())) {}

  std::unique_ptr<FusedStep> steps;
  Mirror order, told;  // the update's first, then the recipe's
  at::Tensor total;
  std::unique_ptr<Recording> recording;
  bool begun = false, warm = false, plain = false;  // warm: a step was launched call by call, all memory is there
};

void TrainLoop::set_steps_done(int64_t steps) {
  steps_done_ = steps;
  whole_.reset();
  looked_for_fused_ = false;
}

bool TrainLoop::has_fused_step() {
  if (looked_for_fused_) return whole_ != nullptr;
  looked_for_fused_ = true;
  if (mine_.size() != state_.shards()) return false;
  if (auto steps = recipe_->fused_step(state_)) {
    whole_ = std::make_shared<Whole>(std::move(steps), state_.contribution_floats());
    whole_->plain = !plain_launches_asked_for().empty();
  }
  return whole_ != nullptr;
}

StepRecord TrainLoop::run_fused_step() {
  Whole& whole = *whole_;
  StepRecord record;
  note_.clear();
  const double begin = monotonic_seconds();
  update_.begin_step(steps_done_);
  wished_ = wish_ ? wish_() : 0;
  const Phase& last = phases_.back();
  if (observer_) observer_->phase_begins(steps_done_, static_cast<int>(phases_.size()) - 1);
  phase_sequence_ = combine_->next_sequence();
  // Alone, a combine sends nothing: it is where others may join, and where a wish is agreed on.
  ContributionLayout layout = layout_of(last);
  layout.floats = 0;
  combine_->begin(layout);
  std::vector<int64_t> counts(static_cast<size_t>(layout.counts)), maxima(static_cast<size_t>(layout.maxima));
  maxima.back() = wished_;
  for (int shard : visit_order_) combine_->add(shard, {{}, counts, maxima, {}});
  int64_t agreed = 0;
  try {
    agreed = combine_->finish().maxima.back();
  } catch (const MembersChanged&) {  // nothing was done: the step is begun again, by phases if others hold shards now
    if (!take_order_) throw;
    take_order_();
    return step();
  }

  if (observer_) observer_->shard_begins(visit_order_.front());
  const auto* const orders = reinterpret_cast<const UpdateParams*>(whole.order.on_gpu());
  const std::byte* const own_order = whole.order.on_gpu() + sizeof(UpdateParams);
  auto* const plan = reinterpret_cast<UpdateDecision*>(whole.told.on_gpu());
  const UpdateParams order = update_.order(0);
  std::memcpy(whole.order.on_host(), &order, sizeof(order));
  whole.steps->fill_order(steps_done_, update_.loss_scale(), whole.order.on_host() + sizeof(UpdateParams));
  const std::span<const float> total{whole.total.data_ptr<float>(), static_cast<size_t>(whole.total.numel())};
  const auto work = [&] {
    whole.order.queue_up(0);
    whole.steps->queue_work(own_order, whole.total.data_ptr<float>());
    update_.queue(total, orders, plan, {}, whole.steps->follower());
    whole.steps->queue_applied(plan, whole.told.on_gpu() + sizeof(UpdateDecision));
    whole.told.queue_down();
  };
  if (!whole.begun) {
    whole.order.queue_up(0);
    whole.steps->queue_first(own_order);
    device().wait();
    whole.begun = true;
  }
  if (!whole.recording && !whole.plain && whole.warm) {
    std::string refused;
    whole.recording = gpu()->record(work, &refused);
    whole.plain = !whole.recording;
    if (whole.plain) note_ = fmt::format("steps are launched call by call, not as one CUDA graph: {}", refused);
  }
  if (measure_)
    std::exchange(measure_, nullptr)(work);
  else if (whole.recording)
    whole.recording->play();
  else
    work();
  wait_for_gpu();
  whole.warm = true;
  report_replayed_shards();
  if (observer_) {
    observer_->combine_begins();
    observer_->combine_ends();
  }

  const std::byte* const told = whole.told.on_host() + sizeof(UpdateDecision);
  StepContext context{.step = steps_done_, .state = &state_, .record = &record};
  whole.steps->acted(told, context);
  const UpdateResult result = update_.settle(total, 0, *reinterpret_cast<const UpdateDecision*>(whole.told.on_host()));
  context.skipped = record.skipped = result.skipped;
  record.learning_rate = result.learning_rate;
  record.grad_norm = result.grad_norm;
  record.loss_scale = result.loss_scale;
  if (!result.note.empty()) note_ = result.note;
  whole.steps->apply(told, context);
  agreed_wish_ = agreed;
  if (observer_) observer_->applied();
  if (steps_here_ < 2 || steps_done_ % 100 == 0) check_determinism();
  record.step = ++steps_done_;
  ++steps_here_;
  record.seconds = monotonic_seconds() - begin;
  record.phase_seconds.emplace_back("step", record.seconds);
  return record;
}

}  // namespace tandem
