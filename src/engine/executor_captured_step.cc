// engine/executor_captured_step.cc -- the update as a part of the graph: with all shards, where this worker has all of
// them, or alone.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "engine/executor_captured.h"

namespace tandem {

bool CapturedExecutor::has_step_graph(const PhaseRun& run) {
  const Phase& phase = *run.phase;
  if (!phase.gradients || phase.changes_state || !shards_.holds_all()) return false;
  if (!why_eager_.empty() || agreed_ < kTimesEqual || !shards_.batches().is_full(phase, run.step)) return false;
  if (!stage_inputs(run, run.step)) return false;
  if (!step_graph_) capture_step(run);
  return step_graph_ != nullptr;
}

void CapturedExecutor::capture_step(const PhaseRun& run) {
  std::string refused;
  shards_graph_.reset();  // its memory serves the next one
  step_graph_ = gpu_.capture(
      [this, run] {
        const ShardRunner::FromStaging staged(shards_, *staging_);
        queue_captured(run);
        shards_.send_mail(run);
        partials_ = device_combine().partial_sums();
        const std::span<const float> total = partials_.at(0).values;
        const bool flags = shards_.state().shards() > 1;
        shards_.update().queue(total, staging_->params(), outputs_.decision_on_gpu(),
                               flags ? outputs_.bad_on_gpu() : std::span<int64_t>());
        outputs_.queue_fetch(total.data() + total.size() - static_cast<size_t>(run.phase->floats));
      },
      &refused);
  device_combine().begin_floats();
  if (!step_graph_) use_eager(*run.phase, refused);
}

PhaseResult CapturedExecutor::launch_step(const PhaseRun& run) {
  const bool compare = !step_agreed_ || compares_again(run);
  Bits eager;
  if (compare) {
    queue_eagerly(run);
    outputs_.queue_fetch(nullptr);
    shards_.device().wait();
    eager = fingerprint(run, device_combine().partial_sums());
    std::vector<std::vector<int64_t>> counts;
    for (int i = 0; i < shards_.count(); ++i) counts.push_back(shards_.scratch(i).counts);
    if (total_counts(counts) != total_counts(host_counts_)) went_stale(run);
    shards_.shard_ends(shards_.count() - 1);
  }
  reset_scratch(run);
  shards_.add_sums(run);
  device_combine().set_partial_sums(partials_);
  Total total = shards_.combine().finish();  // nobody can join in this phase any more: now it may change the weights
  shards_.shard_begins(0);
  queue_inputs(run);
  step_graph_->replay();
  stage_ahead_and_wait(run);
  if (compare && fingerprint(run, partials_) != eager) went_stale(run);
  step_agreed_ = true;
  decision_ = outputs_.decision();
  floats_.assign(outputs_.floats().begin(), outputs_.floats().end());
  if (group_size_ > 1 && has_bad()) find_bad_shard(run);
  shards_.read_sums(run);
  total = total_of_step(run, total);
  shards_.report_all_ended();
  if (LoopObserver* observer = shards_.observer()) {
    observer->combine_begins();
    observer->combine_ends();
  }
  shards_.batches().forget_before(run.step + 1);
  return {total, floats_, &decision_};
}

bool CapturedExecutor::has_bad() {
  for (int i = 0; i < shards_.count(); ++i)
    if (outputs_.bad(i) >= 0) return true;
  return false;
}

// Of a step whose update was skipped: its shards run once more, one by one, for their flags alone.
void CapturedExecutor::find_bad_shard(const PhaseRun& run) {
  gpu_.in_work_memory([&] {
    shards_.clear_sums(run);
    for (int i = 0; i < shards_.count(); ++i) shards_.run_shard(run, i, 0);
    outputs_.queue_fetch(nullptr);
    shards_.device().wait();
  });
}

// The combine went before the work: what the shards counted is added up here.
Total CapturedExecutor::total_of_step(const PhaseRun& run, Total total) {
  counts_.assign(static_cast<size_t>(run.phase->counts), 0);
  maxima_.assign(shards_.scratch(0).maxima.begin(), shards_.scratch(0).maxima.end());
  for (int i = 0; i < shards_.count(); ++i) {
    const ShardScratch& scratch = shards_.scratch(i);
    for (size_t k = 0; k < counts_.size(); ++k) counts_[k] += scratch.counts[k];
    for (size_t k = 0; k < maxima_.size(); ++k) maxima_[k] = std::max(maxima_[k], scratch.maxima[k]);
  }
  total.counts = counts_;
  total.maxima = maxima_;
  return total;
}

// The update alone, where the total comes from several workers. result.applied stays null where it is not captured.
void CapturedExecutor::launch_update(const PhaseRun& run, PhaseResult& result) {
  if (!why_eager_.empty() || agreed_ < kTimesEqual || update_refused_) return;
  const std::span<const float> total = result.total.floats;
  if (!update_graph_ || total_ != total.data()) {
    std::string refused;
    total_ = total.data();
    update_graph_ = gpu_.capture(
        [this, total, floats = static_cast<size_t>(run.phase->floats)] {
          shards_.update().queue(total, staging_->params(), outputs_.decision_on_gpu(), {});
          outputs_.queue_fetch(total.data() + total.size() - floats);
        },
        &refused);
    update_refused_ = !update_graph_;
    if (update_refused_)
      return shards_.note(fmt::format("the update of phase '{}' runs eagerly: {}", run.phase->name, refused));
  }
  const int64_t flag = result.total.maxima[static_cast<size_t>(run.phase->maxima)];
  const int copy = host_copy(run.step);
  staging_->put(copy, shards_.update().params(flag));
  staging_->queue_up_params(copy);
  update_graph_->replay();
  shards_.device().wait();
  result.floats = outputs_.floats();
  result.applied = &outputs_.decision();
}

}  // namespace tandem
