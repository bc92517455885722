#include "launch/checkpoint_writer.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/errors.h"
#include "base/fault_points.h"
#include "config/units.h"
#include "fleet/snapshot_pace.h"

namespace tandem {

CheckpointWriter::CheckpointWriter(CheckpointStore& store, const CheckpointSettings& settings, uint64_t bytes)
    : store_(store), cost_(guessed_snapshot_seconds(bytes)) {
  const Interval interval = parse_interval(settings.every).value();
  automatic_ = interval.automatic;
  every_seconds_ = automatic_ ? kCheckpointSeconds : interval.seconds;
  every_steps_ = interval.steps;
  event_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  thread_ = std::thread([this] { work(); });
}

CheckpointWriter::~CheckpointWriter() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (event_fd_ >= 0) close(event_fd_);
}

double CheckpointWriter::automatic_seconds() const {
  return checkpoint_interval(cost_.seconds(), last_write_, last_write_cpu_);
}

bool CheckpointWriter::due(double now, double seconds_left) {
  if (last_seconds_ < 0) last_seconds_ = now;  // the clock starts with the first question
  const double since = now - last_seconds_;
  const bool is_time = automatic_ ? worth_it(since, seconds_left, automatic_seconds(), kCheckpointSeconds)
                                  : every_seconds_ > 0 && since >= every_seconds_;
  return is_time && !busy();
}

bool CheckpointWriter::nearly_due(double now) const {
  return automatic_ && last_seconds_ >= 0 && now - last_seconds_ >= kTogether * automatic_seconds() && !busy();
}

bool CheckpointWriter::busy() const {
  std::lock_guard lock(mutex_);
  return busy_;
}

void CheckpointWriter::start(CheckpointContents contents, int buffer, double stall, double now) {
  last_seconds_ = now;
  cost_.took(stall);
  std::lock_guard lock(mutex_);
  job_.emplace(Job{std::move(contents), buffer, stall});
  busy_ = true;
  changed_.notify_all();
}

void CheckpointWriter::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !busy_; });
}

CheckpointReport CheckpointWriter::save_now(CheckpointContents contents, double stall) {
  finish();
  CheckpointReport report = write({std::move(contents), -1, stall});
  if (report.saved) last_saved_step_ = report.step;
  return report;
}

std::optional<CheckpointReport> CheckpointWriter::poll() {
  std::lock_guard lock(mutex_);
  uint64_t count;
  [[maybe_unused]] const auto got = read(event_fd_, &count, sizeof count);
  if (reports_.empty()) return std::nullopt;
  CheckpointReport report = std::move(reports_.front());
  reports_.erase(reports_.begin());
  if (report.saved) last_saved_step_ = report.step;
  last_write_ = report.write_seconds;
  last_write_cpu_ = report.write_cpu_seconds;
  return report;
}

CheckpointReport CheckpointWriter::write(const Job& job) {
  CheckpointReport report{.step = job.contents.step, .stall_seconds = job.stall, .buffer = job.buffer};
  const double begin = monotonic_seconds(), cpu = thread_cpu_seconds();
  try {
    fault_point("before-rename", job.contents.step);
    store_.save(job.contents);
    fault_point("after-rename", job.contents.step);
    report.saved = true;
    report.bytes = store_.last_bytes();
    report.warnings = store_.last_warnings();
    if (auto warning = store_.space_warning(report.bytes)) report.warnings.push_back(*warning);
  } catch (const Error& error) {
    report.error = std::string(error.what()) + ": " + error.why();
  } catch (const std::exception& error) {
    report.error = error.what();
  }
  report.write_seconds = monotonic_seconds() - begin;
  report.write_cpu_seconds = thread_cpu_seconds() - cpu;
  return report;
}

void CheckpointWriter::work() {
  sigset_t all;  // signals are the main thread's
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || job_; });
    if (!job_) return;  // a job that was handed over is still written
    const Job job = std::move(*job_);
    job_.reset();
    lock.unlock();
    CheckpointReport report = write(job);
    lock.lock();
    reports_.push_back(std::move(report));
    busy_ = false;
    const uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(event_fd_, &one, sizeof one);
    changed_.notify_all();
  }
}

}  // namespace tandem
