#include "engine/step_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "engine/operations.h"
#include "engine/slow_worker.h"
#include "engine/train_loop.h"

namespace tandem {
namespace {

constexpr double kDelaySeconds = 0.02;  // between looks at what the kernel tells: one call to it

// The first steps choose and allocate; the number hardly ever changes after them.
bool is_counted(uint64_t step) { return step == 3 || step == 6 || step % 1000 == 999; }

void add(std::atomic<uint64_t>& counter, double seconds) {
  if (seconds > 0) counter.fetch_add(static_cast<uint64_t>(seconds * 1e9), std::memory_order_relaxed);
}

}  // namespace

StepTimes::StepTimes() = default;
StepTimes::~StepTimes() = default;

void StepTimes::step_begins(TrainLoop& loop, bool on_gpu) {
  if (!on_gpu && is_counted(steps_)) {
    if (page_->operation_ps.load(std::memory_order_relaxed) == 0)
      page_->operation_ps.store(static_cast<uint64_t>(seconds_per_operation() * 1e12), std::memory_order_relaxed);
    count_ = std::make_unique<OperationCount>();
  }
  ++steps_;
  load_at_step_ = loop.load_seconds();
  gpu_at_step_ = loop.gpu_seconds();
  // A loop that was built anew begins at 0 again.
  made_at_step_ = std::min(made_at_step_, loop.making().seconds());
  asleep_at_step_ = std::min(asleep_at_step_, loop.making().asleep_seconds());
  step_began_ = monotonic_seconds();
  late_at_combine_ = loop.combine().late_seconds();  // what a validation waited is not this step's
}

void StepTimes::step_ends(TrainLoop& loop) {
  if (const auto count = std::exchange(count_, nullptr)) {
    page_->operations.fetch_add(static_cast<uint64_t>(count->count()), std::memory_order_relaxed);
    page_->counted_steps.fetch_add(1, std::memory_order_relaxed);
  }
  const double now = monotonic_seconds();
  add(page_->step_ns, now - step_began_);
  look_for_delay(now);
  add(page_->made_ns, loop.making().seconds() - made_at_step_);
  add(page_->asleep_ns, loop.making().asleep_seconds() - asleep_at_step_);
  made_at_step_ = loop.making().seconds();
  asleep_at_step_ = loop.making().asleep_seconds();
  add(page_->load_ns, loop.load_seconds() - load_at_step_);
  add(page_->gpu_ns, loop.gpu_seconds() - gpu_at_step_);
}

void StepTimes::shard_begins(const TrainLoop& loop) {
  shard_began_ = monotonic_seconds();
  load_at_shard_ = loop.load_seconds();
}

void StepTimes::shard_ends(const TrainLoop& loop) {
  const double seconds = monotonic_seconds() - shard_began_;
  add(page_->compute_ns, seconds);
  add(page_->work_ns, seconds - (loop.load_seconds() - load_at_shard_));
  page_->shards_run.fetch_add(1, std::memory_order_relaxed);
}

void StepTimes::rest(SlowWorker& slow, const TrainLoop& loop) {
  const double seconds = slow.rest();
  add(page_->compute_ns, seconds);  // by which shards are shared out: as a slower core would be
  slowed_ = slow.slowed();
  // Waiting for a core is part of its rest; only what is beyond that made it slower than it was set to be.
  load_at_rest_ = std::min(load_at_rest_, loop.load_seconds());
  const double late = slow.late() - (seconds > 0 ? 0 : loop.load_seconds() - load_at_rest_);
  add(page_->work_ns, seconds + (seconds > 0 ? late : 0));
  if (slowed_) add(page_->delay_ns, late);
  load_at_rest_ = loop.load_seconds();
}

void StepTimes::look_for_delay(double now) {
  if (now - looked_ < kDelaySeconds) return;
  looked_ = now;
  const double delay = thread_wait_seconds();
  if (!slowed_ && delay_at_look_ >= 0) add(page_->delay_ns, delay - delay_at_look_);
  delay_at_look_ = delay;
}

void StepTimes::combined_inside(TrainLoop& loop, double seconds) {
  shard_began_ += seconds;
  add(page_->combine_ns, seconds);
  add(page_->wait_ns, loop.combine().late_seconds() - late_at_combine_);
  late_at_combine_ = loop.combine().late_seconds();
}

void StepTimes::combine_begins(TrainLoop& loop) {
  combine_began_ = monotonic_seconds();
  late_at_combine_ = loop.combine().late_seconds();
}

void StepTimes::combine_ends(TrainLoop& loop) {
  combine_ended_ = monotonic_seconds();
  add(page_->combine_ns, combine_ended_ - combine_began_);
  add(page_->wait_ns, loop.combine().late_seconds() - late_at_combine_);
  late_at_combine_ = loop.combine().late_seconds();
}

std::string StepTimes::text() const {
  const auto seconds = [](const std::atomic<uint64_t>& ns) { return static_cast<double>(ns.load()) * 1e-9; };
  return fmt::format("{} steps: computing {:.3f} s, combining {:.3f} s (with waiting), snapshots {:.3f} s",
                     page_->steps_run.load(), seconds(page_->compute_ns), seconds(page_->combine_ns),
                     seconds(page_->snapshot_ns));
}

void StepTimes::applied() {
  if (combine_ended_ > 0) add(page_->update_ns, monotonic_seconds() - std::exchange(combine_ended_, 0));
}

}  // namespace tandem
