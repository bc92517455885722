#include "engine/checkpointer.h"

#include <algorithm>

#include "base/clock.h"
#include "base/errors.h"
#include "config/units.h"

namespace tandem {

Checkpointer::Checkpointer(CheckpointStore& store, const CheckpointSettings& settings, Fill fill)
    : store_(store), fill_(std::move(fill)) {
  const Interval interval = parse_interval(settings.every).value();
  automatic_ = interval.automatic;
  every_seconds_ = automatic_ ? 10 : interval.seconds;
  every_steps_ = interval.steps;
  thread_ = std::thread([this] { work(); });
}

Checkpointer::~Checkpointer() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool Checkpointer::due(int64_t step, double now) {
  if (last_seconds_ < 0) {  // the clock starts with the first step
    last_seconds_ = now;
    last_step_ = step - 1;
  }
  double seconds = every_seconds_;
  if (automatic_) seconds = std::max({seconds, 200 * last_stall_, 10 * last_write_});
  const bool wanted = (every_steps_ > 0 && step / every_steps_ > last_step_ / every_steps_) ||
                      (every_seconds_ > 0 && now - last_seconds_ >= seconds);
  if (!wanted) return false;
  std::lock_guard lock(mutex_);
  return !busy_;
}

Snapshot Checkpointer::copy(TrainLoop& loop) {
  const double begin = monotonic_seconds();
  std::vector<at::Tensor> reuse;
  {
    std::lock_guard lock(mutex_);
    reuse = std::move(reuse_);
    reuse_.clear();
  }
  Snapshot snapshot = take_snapshot(loop, std::move(reuse));
  fill_(snapshot.contents);
  last_stall_ = monotonic_seconds() - begin;
  return snapshot;
}

void Checkpointer::start(TrainLoop& loop, double now) {
  Snapshot snapshot = copy(loop);
  stalled_seconds_ += last_stall_;
  last_seconds_ = now;
  last_step_ = loop.steps_done();
  std::lock_guard lock(mutex_);
  job_ = std::move(snapshot);
  job_stall_ = last_stall_;
  busy_ = true;
  changed_.notify_all();
}

CheckpointReport Checkpointer::save_now(TrainLoop& loop, double now) {
  const double begin = monotonic_seconds();
  {
    std::unique_lock lock(mutex_);
    wait_idle(lock);
  }
  const Snapshot snapshot = copy(loop);
  CheckpointReport report = write(snapshot, last_stall_);
  last_seconds_ = now;
  last_step_ = loop.steps_done();
  if (report.saved) last_saved_step_ = report.step;
  report.stall_seconds = monotonic_seconds() - begin;
  return report;
}

void Checkpointer::wait_idle(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [this] { return !busy_; });
}

std::optional<CheckpointReport> Checkpointer::poll() {
  std::lock_guard lock(mutex_);
  if (reports_.empty()) return std::nullopt;
  CheckpointReport report = std::move(reports_.front());
  reports_.erase(reports_.begin());
  if (report.saved) last_saved_step_ = report.step;
  last_write_ = report.write_seconds;
  return report;
}

CheckpointReport Checkpointer::write(const Snapshot& snapshot, double stall) {
  CheckpointReport report{.step = snapshot.contents.step, .stall_seconds = stall};
  const double begin = monotonic_seconds();
  try {
    report.bytes = store_.bytes_needed(snapshot.contents);
    store_.save(snapshot.contents);
    report.saved = true;
    report.warnings = store_.last_warnings();
    if (auto warning = store_.space_warning(report.bytes)) report.warnings.push_back(*warning);
  } catch (const Error& error) {
    report.error = std::string(error.what()) + ": " + error.why();
  } catch (const std::exception& error) {
    report.error = error.what();
  }
  report.write_seconds = monotonic_seconds() - begin;
  return report;
}

void Checkpointer::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || job_; });
    if (!job_) return;  // a job that was handed over is still written
    Snapshot snapshot = std::move(*job_);
    job_.reset();
    const double stall = job_stall_;
    lock.unlock();
    CheckpointReport report = write(snapshot, stall);
    lock.lock();
    reuse_ = std::move(snapshot.held);
    reports_.push_back(std::move(report));
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace tandem
