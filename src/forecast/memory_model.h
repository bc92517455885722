// forecast/memory_model.h -- how much memory a worker will need at most, in parts.
//
// A trial measures the peak of a worker with a small replay at some batches. What is known exactly (weights, optimizer,
// shards' state and their copies in snapshots) is taken out, the rest follows the batch on a line; then the known parts
// are put back as the real run has them. Made to be never below the truth: a margin of a few percent is added, and
// room for a shard that moves to a worker which turns out to be faster, as far as that keeps the forecast close.
// On a GPU activations are held once, captured or not: for the shards of a pass, where shards share one
// (engine/shard_groups.h), else for those that run side by side (config/gpu_memory.h). A worker with fewer shards has
// smaller passes. A large copy to roll back to lies in host memory.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "forecast/calibration.h"

namespace tandem {

struct MemoryForecast {
  double weights = 0, gradients = 0, optimizer = 0, activations = 0, data = 0;
  double snapshots = 0;  // on the CPU: its part of what a death must not reach, in memory it shares with the launcher
  double overhead = 0;   // the process and its libraries, or the GPU's context; and the margin
  double total() const { return weights + gradients + optimizer + activations + data + snapshots + overhead; }
};

class MemoryModel {
 public:
  // Throws ConfigError if no trial of one device has this precision and kind of device.
  MemoryModel(const Calibration& calibration, const std::string& precision, bool gpu);

  // Of the worker that holds `held` of the shards. `seconds`: how long the run will take.
  MemoryForecast worker(const JobShape& job, int64_t batch, int held, int workers, double seconds) const;
  // Of the worker that needs most, where they are dealt out like this at first.
  MemoryForecast most(const JobShape& job, int64_t batch, const std::vector<int>& shards, double seconds) const;

 private:
  std::vector<std::pair<double, double>> rest_;  // by batch: what is neither known nor there before the first shard
  double base_ = 0;                              // before the first shard, without what is known
  double more(int workers) const;
  // On a GPU: what rest_ becomes for a worker with so many shards.
  double at_work(double batch, int held, double vector_bytes) const;
  double side_by_side(int held, double vector_bytes) const;
  double in_smaller_pass(double batch, double least) const;
  int64_t in_pass(double batch) const;

  std::map<double, int64_t> in_pass_;  // by batch: shards that shared a pass, of one worker with all of them
  std::map<int, double> several_;      // by number of workers: what they need more
  std::map<int, int64_t> held_;        // ... and the shards that one of them came to hold, whenever it was tried
  int64_t shards_ = 1;
  bool gpu_ = false;
};

}  // namespace tandem
