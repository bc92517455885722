// engine/slow_worker.h -- a CPU worker slowed down to a slower machine, for tests (`--devices cpu:2@1,0.5`,
// TANDEM_SLOW).
//
// TANDEM_SLOW_LOADER="12" makes every batch 12 ms late, TANDEM_SLOW_LINK="200" lets sums pass at 200 MB/s
// (engine/slow_link.h), TANDEM_SLOW_OPERATIONS="30" makes each of libtorch's operations cost 30 us more
// (engine/operations.h).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/clock.h"

namespace tandem {

inline double slowed_by(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::max(0.0, std::atof(text)) : 0;
}

inline void delay_loader_for_tests() {
  static const double ms = slowed_by("TANDEM_SLOW_LOADER");
  if (ms > 0) std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
}

class SlowWorker {
 public:
  void set_speed(double speed) { speed_ = speed; }
  // TANDEM_SLOW="rank:step:speed": from this step on.
  void read_environment(int rank) {
    const char* text = std::getenv("TANDEM_SLOW");
    int whose = -1;
    long step = -1;
    if (!text || std::sscanf(text, "%d:%ld:%lf", &whose, &step, &later_) != 3 || whose != rank) return;
    later_from_ = step;
  }
  void phase_begins(int64_t step) {
    due_ = 0;
    if (later_from_ >= 0 && step >= later_from_) speed_ = later_;
  }
  void shard_begins() {
    if (speed_ >= 1) return;
    if (due_ == 0) due_ = monotonic_seconds();
    cpu_ = thread_cpu_seconds();
  }
  void shard_ends() {
    if (speed_ < 1) due_ += (thread_cpu_seconds() - cpu_) / speed_;
  }
  // Sleeps until a slower core would be done with its shards; returns the seconds. At once: between shards its core
  // would get cold, and slower still.
  double rest() {
    const double left = due_ > 0 ? due_ - monotonic_seconds() : 0;
    late_ = std::max(0.0, -left);
    if (left > 0) {
      std::this_thread::sleep_for(std::chrono::duration<double>(left));
      late_ = std::max(0.0, monotonic_seconds() - due_);  // on a busy core it is woken and not run
    }
    due_ = 0;
    return std::max(0.0, left);
  }
  bool slowed() const { return speed_ < 1; }
  // By how much it was later than a slower core would have been, with the last rest: it did not get its share of one.
  double late() const { return late_; }

 private:
  double speed_ = 1, later_ = 1, due_ = 0, cpu_ = 0, late_ = 0;
  int64_t later_from_ = -1;
};

}  // namespace tandem
