#include "engine/executor_fused.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "engine/executor_captured.h"
#include "engine/mirror.h"
#include "engine/shard_runner.h"
#include "nn/here.h"
#include "reduce/direct_gpu_link.h"

namespace tandem {
namespace {

// The engine's part of what goes up and comes back; the recipe's follows it in the same block of memory.
struct EngineParams {
  UpdateParams update;
  int64_t hold = -1;  // 0: a sum did not end
};
struct EngineOutputs {
  UpdateDecision decision;
  int64_t request = 0;  // the largest of all workers
};

}  // namespace

struct FusedExecutor::Memory {
  Memory(std::unique_ptr<FusedStep> s, int64_t floats, size_t subtrees)
      : step(std::move(s)),
        params(sizeof(EngineParams) + step->params_bytes()),
        outputs(sizeof(EngineOutputs) + step->output_bytes()),
        total(at::zeros({floats}, here())) {
    for (size_t k = 0; k < subtrees; ++k) {
      made.push_back(at::zeros({floats}, here()));
      gradients.push_back(made.back().data_ptr<float>());
    }
  }

  void fill(const UpdateParams& update_params, int64_t steps_done, double loss_scale) {
    const EngineParams ours{.update = update_params};
    std::memcpy(params.on_host(), &ours, sizeof(ours));
    step->fill_params(steps_done, loss_scale, params.on_host() + sizeof(EngineParams));
  }
  const std::byte* step_params() const { return params.on_gpu() + sizeof(EngineParams); }
  EngineParams& params_there() const { return *reinterpret_cast<EngineParams*>(params.on_gpu()); }
  EngineOutputs& outputs_there() const { return *reinterpret_cast<EngineOutputs*>(outputs.on_gpu()); }
  std::span<const float> all() const { return {total.data_ptr<float>(), static_cast<size_t>(total.numel())}; }

  void queue(Update& update) {
    params.queue_up(0);
    step->queue_work(step_params(), total.data_ptr<float>());
    queue_update(update, {});
  }
  // From sum number `first` on; `again`: without the part before it, which is done.
  void queue_from(int first, bool again, DeviceCombine& combine, Update& update) {
    params.queue_up(0);
    int64_t* const hold = &params_there().hold;
    const std::vector<StepSum> before = step->sums();
    const int last = static_cast<int>(before.size());
    for (int i = first; i <= last; ++i) {
      if (!(again && i == first)) step->queue_part(i, step_params(), hold, gradients);
      i < last ? queue_sum(before[static_cast<size_t>(i)], i, combine) : queue_last_sum(i, combine);
    }
    step->queue_combined(total.data_ptr<float>(), hold);
    queue_update(update, {hold, 1});
  }
  void queue_sum(const StepSum& sum, int ahead, DeviceCombine& combine) {
    combine.queue({.total = sum.joined,
                   .mine = {&sum.mine, sum.floats > 0 ? size_t{1} : 0},
                   .floats = sum.floats,
                   .bits = true,
                   .ahead = ahead,
                   .integers = {.counts = sum.counts,
                                .of_shards = {.shards = sum.counts > 0 ? 1 : 0, .counted = sum.counted},
                                .total = sum.total,
                                .bad = &params_there().hold,
                                .from_host = false}});
  }
  void queue_last_sum(int ahead, DeviceCombine& combine) {
    combine.queue(
        {.total = total.data_ptr<float>(),
         .mine = gradients,
         .floats = total.numel(),
         .ahead = ahead,
         .integers = {.maxima = 1, .of_shards = {}, .total = &outputs_there().request, .bad = &params_there().hold}});
  }
  void queue_update(Update& update, std::span<const int64_t> hold) {
    UpdateDecision* const decision = &outputs_there().decision;
    update.queue(all(), &params_there().update, decision, hold, step->target_update());
    step->queue_applied(decision, outputs.on_gpu() + sizeof(EngineOutputs));
    outputs.queue_down();
  }
  // After a wait:
  const EngineOutputs& came() { return *reinterpret_cast<const EngineOutputs*>(outputs.on_host()); }
  const std::byte* step_outputs() { return outputs.on_host() + sizeof(EngineOutputs); }

  std::unique_ptr<FusedStep> step;
  Mirror params, outputs;
  at::Tensor total;
  std::vector<at::Tensor> made;
  std::vector<float*> gradients;  // of this worker's subtrees, where others hold shards
};

std::unique_ptr<FusedExecutor> FusedExecutor::make(ShardRunner& shards) {
  if (!shards.gpu() || shards.count() == 0) return nullptr;
  std::unique_ptr<FusedStep> step = shards.recipe().fused_step(shards.state());
  if (!step || (!shards.holds_all() && step->sums().empty())) return nullptr;
  return std::unique_ptr<FusedExecutor>(new FusedExecutor(shards, std::move(step)));
}

FusedExecutor::FusedExecutor(ShardRunner& shards, std::unique_ptr<FusedStep> step)
    : shards_(shards),
      gpu_(*shards.gpu()),
      memory_(std::make_unique<Memory>(std::move(step), shards.state().contribution_floats(),
                                       shards.holds_all() ? 0 : shards.combine().subtrees().size())),
      eager_(!eager_asked_for().empty()) {}

FusedExecutor::~FusedExecutor() = default;

DeviceCombine& FusedExecutor::device_combine() { return *shards_.combine().as_device(); }

PhaseResult FusedExecutor::run(const PhaseRun& run) {
  if (!shards_.holds_all()) return run_with_others(run);
  Total total = agree(run);
  begin_first(run);
  shards_.shard_begins(0);
  launch([this] { memory_->queue(shards_.update()); });
  shards_.wait();
  begin_combining();
  if (LoopObserver* observer = shards_.observer()) observer->combine_ends();
  total.floats = memory_->all();
  return {.total = total, .applied = &memory_->came().decision};
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

// The host only watches: the GPUs make every sum of the step by themselves.
PhaseResult FusedExecutor::run_with_others(const PhaseRun& run) {
  const int sums = static_cast<int>(memory_->step->sums().size()) + 1;
  agreed_ = {run.request};
  begin_first(run);
  device_combine().begin_totals(sums, agreed_);
  combining_ = false;
  shards_.shard_begins(0);
  const double begin = monotonic_seconds();
  launch([this] { memory_->queue_from(0, false, device_combine(), shards_.update()); });
  wait_for_others();
  shards_.add_gpu_seconds(std::max(0.0, monotonic_seconds() - begin - device_combine().total_seconds()));
  if (!combining_) begin_combining();
  if (LoopObserver* observer = shards_.observer()) observer->combine_ends();
  agreed_ = {memory_->came().request};
  return {.total = {memory_->all(), {}, agreed_}, .applied = &memory_->came().decision};
}

// Where others are late a sum's kernel leaves after a while, and the rest is held; then it is queued again.
void FusedExecutor::wait_for_others() {
  const int sums = static_cast<int>(memory_->step->sums().size()) + 1;
  for (int ended; (ended = device_combine().end_totals()) < sums;) {
    if (!combining_) begin_combining();
    memory_->queue_from(ended, true, device_combine(), shards_.update());
  }
}

// For whoever watches: this worker's own work is done.
void FusedExecutor::begin_combining() {
  combining_ = true;
  LoopObserver* const observer = shards_.observer();
  if (observer && !shards_.holds_all()) observer->combined_inside(device_combine().total_seconds());
  shards_.report_all_ended();
  if (observer) observer->combine_begins();
}

void FusedExecutor::begin_first(const PhaseRun& run) {
  memory_->fill(shards_.update().params(0), run.step, shards_.update().loss_scale());
  if (std::exchange(begun_, true)) return;
  memory_->params.queue_up(0);
  memory_->step->queue_first(memory_->step_params());
  shards_.device().wait();
}

void FusedExecutor::launch(const std::function<void()>& work) {
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
  warm_ = true;
}

void FusedExecutor::before_update(const PhaseRun&, const PhaseResult&, StepContext& context) {
  memory_->step->apply_earlier_phases(memory_->step_outputs(), context);
}

void FusedExecutor::apply(const PhaseRun&, const PhaseResult&, StepContext& context) {
  memory_->step->apply(memory_->step_outputs(), context);
}

}  // namespace tandem
