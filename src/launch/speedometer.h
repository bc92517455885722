// launch/speedometer.h -- how fast each worker computes, from its progress counters.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "launch/worker_handle.h"

namespace tandem {

class Speedometer {
 public:
  struct Reading {
    std::map<int, double> speeds;  // shards of a step per second of compute, by rank
    double step_seconds = 0;
  };
  // Every few steps: a reading, once all of these workers have done something since the last one.
  std::optional<Reading> read(double now, int64_t step, int phases, const std::map<int, Progress>& workers);
  void reset() { before_.clear(); }  // in a new generation: counters of other ranges

 private:
  std::map<int, Progress> before_;
  int64_t step_ = 0;
  double at_ = 0;
};

}  // namespace tandem
