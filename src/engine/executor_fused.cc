#include "engine/executor_fused.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "engine/executor_captured.h"
#include "engine/mirror.h"
#include "engine/shard_runner.h"
#include "nn/here.h"

namespace tandem {

// Parameters and outputs of a step each lie in one block of memory: first the update's part, then the recipe's.
struct FusedExecutor::Memory {
  Memory(std::unique_ptr<FusedStep> s, int64_t floats)
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
};

std::unique_ptr<FusedExecutor> FusedExecutor::make(ShardRunner& shards) {
  if (!shards.gpu() || !shards.holds_all()) return nullptr;
  std::unique_ptr<FusedStep> step = shards.recipe().fused_step(shards.state());
  if (!step) return nullptr;
  return std::unique_ptr<FusedExecutor>(new FusedExecutor(shards, std::move(step)));
}

FusedExecutor::FusedExecutor(ShardRunner& shards, std::unique_ptr<FusedStep> step)
    : shards_(shards),
      gpu_(*shards.gpu()),
      memory_(std::make_unique<Memory>(std::move(step), shards.state().contribution_floats())),
      eager_(!eager_asked_for().empty()) {}

FusedExecutor::~FusedExecutor() = default;

PhaseResult FusedExecutor::run(const PhaseRun& run) {
  Total total = agree(run);
  shards_.shard_begins(0);
  launch(run);
  shards_.report_all_ended();
  if (LoopObserver* observer = shards_.observer()) {
    observer->combine_begins();
    observer->combine_ends();
  }
  total.floats = memory_->total();
  return {.total = total, .applied = &memory_->decision()};
}

// A lone worker's combine sends nothing. It is where others may join, and where all agree on a request.
Total FusedExecutor::agree(const PhaseRun& run) {
  ContributionLayout layout = shards_.layout_of(*run.phase, run.last);
  layout.floats = 0;
  Combine& combine = shards_.combine();
  combine.begin(layout);
  std::vector<int64_t> counts(static_cast<size_t>(layout.counts)), maxima(static_cast<size_t>(layout.maxima));
  maxima.back() = run.request;
  for (const int shard : shards_.order()) combine.add(shard, {{}, counts, maxima, {}});
  return combine.finish();
}

void FusedExecutor::launch(const PhaseRun& run) {
  Memory& memory = *memory_;
  memory.fill(shards_.update().params(0), run.step, shards_.update().loss_scale());
  const auto work = [this] { memory_->queue(shards_.update()); };
  if (!begun_) {
    memory.params.queue_up(0);
    memory.step->queue_first(memory.step_params());
    shards_.device().wait();
    begun_ = true;
  }
  if (!graph_ && !eager_ && warm_) {
    std::string refused;
    graph_ = gpu_.capture(work, &refused);
    eager_ = !graph_;
    if (eager_) shards_.note(fmt::format("steps run eagerly, not as one CUDA graph: {}", refused));
  }
  if (measure_)
    std::exchange(measure_, nullptr)(work);
  else if (graph_)
    graph_->replay();
  else
    work();
  shards_.wait();
  warm_ = true;
}

void FusedExecutor::before_update(const PhaseRun&, const PhaseResult&, StepContext& context) {
  memory_->step->apply_earlier_phases(memory_->step_outputs(), context);
}

void FusedExecutor::apply(const PhaseRun&, const PhaseResult&, StepContext& context) {
  memory_->step->apply(memory_->step_outputs(), context);
}

}  // namespace tandem
