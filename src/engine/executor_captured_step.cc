// engine/executor_captured_step.cc -- the update as a part of the graph: with all shards, where this worker has all of
// them, or alone.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "engine/executor_captured.h"
#include "nn/here.h"
#include "reduce/direct_gpu_link.h"

namespace tandem {

bool CapturedExecutor::has_step_graph(const PhaseRun& run) {
  const Phase& phase = *run.phase;
  if (!phase.gradients || phase.changes_state || !(shards_.holds_all() || sums_on_gpus())) return false;
  if (!why_eager_.empty() || agreed_ < kTimesEqual || !shards_.batches().is_full(phase, run.step)) return false;
  if (!stage_inputs(run, run.step)) return false;
  if (!step_graph_) capture_step(run);
  return step_graph_ != nullptr;
}

void CapturedExecutor::capture_step(const PhaseRun& run) {
  std::string refused;
  if (sums_on_gpus() && !tensor_starts_.defined()) {
    std::vector<int64_t> starts;
    for (const ParameterEntry& entry : shards_.state().parameter_entries()) starts.push_back(entry.offset);
    starts.push_back(shards_.state().parameter_floats());
    tensor_starts_ = here(at::tensor(starts, at::kLong));
  }
  shards_graph_.reset();  // its memory serves the next one
  step_graph_ = gpu_.capture(
      [this, run] {
        const ShardRunner::FromStaging staged(shards_, *staging_);
        queue_captured(run);
        shards_.send_mail(run);
        partials_ = device_combine().partial_sums();
        queue_end_of_step(run);
      },
      &refused);
  device_combine().begin_floats();
  if (!step_graph_) use_eager(*run.phase, refused);
}

bool CapturedExecutor::sums_on_gpus() { return !shards_.holds_all() && device_combine().queues_total(); }

// The sum over all workers, the update, and one copy of what came of them.
void CapturedExecutor::queue_end_of_step(const PhaseRun& run) {
  const Phase& phase = *run.phase;
  std::span<const float> total = partials_.at(0).values;
  std::span<const int64_t> bad;
  if (sums_on_gpus()) {
    const ContributionLayout layout = shards_.layout_of(phase, run.last);
    total = device_combine().queue_total({.counts = static_cast<int>(layout.counts),
                                          .maxima = static_cast<int>(layout.maxima),
                                          .flag = phase.maxima,
                                          .of_shards = {.shards = shards_.count(),
                                                        .first = shards_.mine().first,
                                                        .tensors = static_cast<int32_t>(tensor_starts_.numel()),
                                                        .named = group_size_ == 1,
                                                        .counted = outputs_.counted_on_gpu(),
                                                        .bad = outputs_.bad_on_gpu().data(),
                                                        .starts = tensor_starts_.const_data_ptr<int64_t>()},
                                          .total = outputs_.totals_on_gpu(),
                                          .bad = outputs_.hold_on_gpu().data()});
    bad = outputs_.hold_on_gpu();
  } else if (shards_.state().shards() > 1) {
    bad = outputs_.bad_on_gpu();
  }
  step_total_ = total;
  shards_.update().queue(total, staging_->params(), outputs_.decision_on_gpu(), bad);
  outputs_.queue_fetch(total.data() + total.size() - static_cast<size_t>(phase.floats));
}

// A peer that is late makes the sum's kernel leave after a while, with the update held; then they are queued again.
void CapturedExecutor::wait_for_all(const PhaseRun& run) {
  DeviceCombine& combine = device_combine();
  while (!combine.end_total()) {
    if (!std::exchange(combining_, true)) begin_combining();
    outputs_.queue_clear_hold();
    combine.set_partial_sums(partials_);
    queue_end_of_step(run);
  }
}

// For whoever watches: this worker's own work is done.
void CapturedExecutor::begin_combining() {
  LoopObserver* const observer = shards_.observer();
  if (observer && sums_on_gpus()) observer->combined_inside(device_combine().total_seconds());
  shards_.report_all_ended();
  if (observer) observer->combine_begins();
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
  const bool summed = sums_on_gpus();
  Total total;
  combining_ = false;
  if (summed)
    device_combine().begin_total();
  else
    total = shards_.combine().finish();  // nobody can join in this phase any more: now it may change the weights
  shards_.shard_begins(0);
  queue_inputs(run);
  step_graph_->replay();
  stage_ahead_and(run, [&] {
    const double begin = monotonic_seconds();
    if (!summed) return shards_.wait();
    wait_for_all(run);
    const double seconds = monotonic_seconds() - begin;
    shards_.add_gpu_seconds(std::max(0.0, seconds - device_combine().total_seconds()));
    return seconds;
  });
  if (compare && fingerprint(run, partials_) != eager) went_stale(run);
  if (compare) groups_->was_equal(run.step);
  step_agreed_ = true;
  decision_ = outputs_.decision();
  floats_.assign(outputs_.floats().begin(), outputs_.floats().end());
  if (summed) total = total_from_gpu(run);  // before the outputs are cleared for a bad shard's search
  if (group_size_ > 1 && has_bad()) {
    find_bad_shard(run);
    if (summed) tell_bad_shards();
  }
  shards_.read_sums(run);
  if (!summed) total = total_of_step(run, total);
  if (!std::exchange(combining_, false)) begin_combining();
  if (LoopObserver* observer = shards_.observer()) observer->combine_ends();
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

Total CapturedExecutor::total_from_gpu(const PhaseRun& run) {
  const ContributionLayout layout = shards_.layout_of(*run.phase, run.last);
  const std::span<const int64_t> totals = outputs_.totals();
  const auto counts = static_cast<size_t>(layout.counts), maxima = static_cast<size_t>(layout.maxima);
  counts_.assign(totals.begin(), totals.begin() + static_cast<ptrdiff_t>(counts));
  const std::span<const int64_t> largest = totals.subspan(counts, maxima);
  maxima_.assign(largest.begin(), largest.end());
  return {step_total_, counts_, maxima_};
}

// The flag of shards that share a pass names no shard, since all workers must have the same: who found it says so.
void CapturedExecutor::tell_bad_shards() {
  for (int i = 0; i < shards_.count(); ++i)
    if (const int64_t bad = outputs_.bad(i); bad >= 0)
      shards_.note(fmt::format("NaN or Inf in {} of shard {}",
                               shards_.state().tensor_text(shards_.state().tensor_at(bad)),
                               shards_.order()[static_cast<size_t>(i)]));
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
