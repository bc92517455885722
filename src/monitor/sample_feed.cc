#include "monitor/sample_feed.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "base/clock.h"

namespace tandem {

struct SampleFeed::Shared {
  MonitorSamplerOptions options;
  double interval = 1;
  int event = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<MonitorSample> newest;
  double came_at = monotonic_seconds();
  bool stop = false, ended = false;
  std::exception_ptr failed;
  ~Shared() { ::close(event); }

  void notify() {
    const uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(event, &one, sizeof one);
  }

  // A failure belongs to who shows: he has a terminal to give back, and words for it.
  void run() {
    try {
      look();
    } catch (...) {
      const std::lock_guard lock(mutex);
      failed = std::current_exception();
      notify();
    }
    const std::lock_guard lock(mutex);
    ended = true;
    changed.notify_all();
  }

  void look() {
    MonitorSampler sampler(options);
    sampler.warm_up();
    double next = monotonic_seconds() + std::min(interval, 0.2);  // shares of time need two looks
    std::unique_lock lock(mutex);
    while (!stop) {
      const double left = next - monotonic_seconds();
      if (left > 0 && changed.wait_for(lock, std::chrono::duration<double>(left), [&] { return stop; })) break;
      lock.unlock();
      MonitorSample sample = sampler.take();
      lock.lock();
      newest = std::move(sample);
      came_at = monotonic_seconds();
      notify();
      // Who is late (a driver that takes its time, a laptop that slept) does not hurry after what was missed.
      next = next + interval > came_at ? next + interval : came_at + interval;
    }
  }
};

SampleFeed::SampleFeed(MonitorSamplerOptions options, double interval_seconds) : shared_(std::make_shared<Shared>()) {
  shared_->options = std::move(options);
  shared_->interval = interval_seconds;
  // Signals are for the thread that shows: this one takes none.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([shared = shared_] { shared->run(); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

SampleFeed::~SampleFeed() {
  std::unique_lock lock(shared_->mutex);
  shared_->stop = true;
  shared_->changed.notify_all();
  shared_->changed.wait_for(lock, std::chrono::seconds(2), [&] { return shared_->ended; });
}

int SampleFeed::fd() const { return shared_->event; }

std::optional<MonitorSample> SampleFeed::take() {
  uint64_t count = 0;
  [[maybe_unused]] const auto got = ::read(shared_->event, &count, sizeof count);
  const std::lock_guard lock(shared_->mutex);
  if (shared_->failed) std::rethrow_exception(shared_->failed);
  return std::exchange(shared_->newest, std::nullopt);
}

double SampleFeed::waited() const {
  const std::lock_guard lock(shared_->mutex);
  return monotonic_seconds() - shared_->came_at;
}

}  // namespace tandem
