// engine/train_loop_fused.cc -- the part of TrainLoop that runs a recipe's fused step on a GPU (engine/recipe.h).
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/clock.h"
#include "engine/determinism.h"
#include "engine/gpu_device.h"
#include "engine/mirror.h"
#include "engine/train_loop.h"
#include "kernels/device.h"
#include "nn/here.h"

namespace tandem {

// Parameters and outputs of a step each lie in one block of memory: first the update's part, then the recipe's.
struct TrainLoop::FusedState {
  FusedState(std::unique_ptr<FusedStep> s, int64_t floats)
      : step(std::move(s)),
        params(sizeof(UpdateParams) + step->params_bytes()),
        outputs(sizeof(UpdateDecision) + step->output_bytes()),
        gradient(at::zeros({floats}, here())) {}

  void fill(const UpdateParams& update_params, int64_t steps_done, double loss_scale) {
    std::memcpy(params.on_host(), &update_params, sizeof(update_params));
    step->fill_params(steps_done, loss_scale, params.on_host() + sizeof(UpdateParams));
  }
  const std::byte* step_params() const { return params.on_gpu() + sizeof(UpdateParams); }
  std::span<const float> total() const { return {gradient.data_ptr<float>(), static_cast<size_t>(gradient.numel())}; }
  void queue(Update& update) {
    auto* const decision = reinterpret_cast<UpdateDecision*>(outputs.on_gpu());
    params.queue_up(0);
    step->queue_work(step_params(), gradient.data_ptr<float>());
    update.queue(total(), reinterpret_cast<const UpdateParams*>(params.on_gpu()), decision, {}, step->target_update());
    step->queue_applied(decision, outputs.on_gpu() + sizeof(UpdateDecision));
    outputs.queue_down();
  }
  // After queue() and a wait:
  const UpdateDecision& decision() { return *reinterpret_cast<const UpdateDecision*>(outputs.on_host()); }
  const std::byte* step_outputs() { return outputs.on_host() + sizeof(UpdateDecision); }

  std::unique_ptr<FusedStep> step;
  Mirror params, outputs;
  at::Tensor gradient;
  std::unique_ptr<CudaGraph> graph;
  bool begun = false, warm = false, eager = false;  // warm: one step ran eagerly, so all memory is allocated
};

void TrainLoop::set_steps_done(int64_t steps) {
  steps_done_ = steps;
  fused_.reset();
  looked_for_fused_ = false;
}

bool TrainLoop::has_fused_step() {
  if (looked_for_fused_) return fused_ != nullptr;
  looked_for_fused_ = true;
  if (mine_.size() != state_.shards()) return false;
  if (auto step = recipe_->fused_step(state_)) {
    fused_ = std::make_shared<FusedState>(std::move(step), state_.contribution_floats());
    fused_->eager = !eager_asked_for().empty();
  }
  return fused_ != nullptr;
}

// A lone worker's combine sends nothing. It is where others may join, and where all agree on a request. Nothing is
// returned if the members changed: the step is begun again then, by phases if others hold shards now.
std::optional<int64_t> TrainLoop::agree_on_request() {
  try {
    ContributionLayout layout = layout_of(phases_.back());
    layout.floats = 0;
    combine_->begin(layout);
    std::vector<int64_t> counts(static_cast<size_t>(layout.counts)), maxima(static_cast<size_t>(layout.maxima));
    maxima.back() = requested_;
    for (int shard : visit_order_) combine_->add(shard, {{}, counts, maxima, {}});
    return combine_->finish().maxima.back();
  } catch (const MembersChanged&) {
    if (!enter_generation_) throw;
    enter_generation_();
    return std::nullopt;
  }
}

void TrainLoop::launch_fused_step() {
  FusedState& fused = *fused_;
  fused.fill(update_.params(0), steps_done_, update_.loss_scale());
  const auto work = [&] { fused.queue(update_); };
  if (!fused.begun) {
    fused.params.queue_up(0);
    fused.step->queue_first(fused.step_params());
    device().wait();
    fused.begun = true;
  }
  if (!fused.graph && !fused.eager && fused.warm) {
    std::string refused;
    fused.graph = gpu()->capture(work, &refused);
    fused.eager = !fused.graph;
    if (fused.eager) note_ = fmt::format("steps run eagerly, not as one CUDA graph: {}", refused);
  }
  if (measure_)
    std::exchange(measure_, nullptr)(work);
  else if (fused.graph)
    fused.graph->replay();
  else
    work();
  wait_for_gpu();
  fused.warm = true;
}

StepRecord TrainLoop::run_fused_step() {
  StepRecord record;
  note_.clear();
  const double begin = monotonic_seconds();
  update_.begin_step(steps_done_);
  requested_ = request_ ? request_() : 0;
  if (observer_) observer_->phase_begins(steps_done_, static_cast<int>(phases_.size()) - 1);
  phase_sequence_ = combine_->next_sequence();
  const std::optional<int64_t> agreed = agree_on_request();
  if (!agreed) return step();

  if (observer_) observer_->shard_begins(visit_order_.front());
  launch_fused_step();
  report_shards_done();
  if (observer_) {
    observer_->combine_begins();
    observer_->combine_ends();
  }

  FusedState& fused = *fused_;
  StepContext context{.step = steps_done_, .state = &state_, .record = &record};
  fused.step->apply_earlier_phases(fused.step_outputs(), context);
  const UpdateResult result = update_.settle(fused.total(), 0, fused.decision());
  fill_record(result, record);
  context.skipped = result.skipped;
  fused.step->apply(fused.step_outputs(), context);
  agreed_request_ = *agreed;
  if (observer_) observer_->applied();
  end_step(record, begin);
  record.phase_seconds.emplace_back("step", record.seconds);
  return record;
}

}  // namespace tandem
