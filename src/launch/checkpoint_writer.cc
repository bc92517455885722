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

namespace tandem {

CheckpointWriter::CheckpointWriter(CheckpointStore& store, const CheckpointSettings& settings) : store_(store) {
  const Interval interval = parse_interval(settings.every).value();
  automatic_ = interval.automatic;
  every_seconds_ = automatic_ ? 10 : interval.seconds;
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

bool CheckpointWriter::due(double now) {
  if (last_seconds_ < 0) last_seconds_ = now;  // the clock starts with the first question
  double seconds = every_seconds_;
  if (automatic_) seconds = std::max({seconds, 200 * last_stall_, 10 * last_write_});
  return every_seconds_ > 0 && now - last_seconds_ >= seconds && !busy();
}

bool CheckpointWriter::busy() const {
  std::lock_guard lock(mutex_);
  return busy_;
}

void CheckpointWriter::start(CheckpointContents contents, int buffer, double stall, double now) {
  last_seconds_ = now;
  last_stall_ = stall;
  std::lock_guard lock(mutex_);
  job_.emplace(Job{std::move(contents), buffer, stall});
  busy_ = true;
  changed_.notify_all();
}

CheckpointReport CheckpointWriter::save_now(CheckpointContents contents, double stall) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !busy_; });
  }
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
  return report;
}

CheckpointReport CheckpointWriter::write(const Job& job) {
  CheckpointReport report{.step = job.contents.step, .stall_seconds = job.stall, .buffer = job.buffer};
  const double begin = monotonic_seconds();
  try {
    report.bytes = store_.bytes_needed(job.contents);
    fault_point("before-rename", job.contents.step);
    store_.save(job.contents);
    fault_point("after-rename", job.contents.step);
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
