// engine/loop_observer.h -- notified of where the loop is; for progress counters and fault points.
#pragma once

#include <cstdint>

namespace tandem {

class LoopObserver {
 public:
  virtual ~LoopObserver() = default;
  virtual void phase_begins(int64_t step, int phase) = 0;
  virtual void shard_begins(int shard) = 0;
  virtual void shard_ends(int shard) = 0;
  // So many seconds of the work since shard_begins() were a sum over all workers, inside a graph.
  virtual void combined_inside(double seconds) {}
  virtual void combine_begins() = 0;
  virtual void combine_ends() = 0;
  virtual void applied() = 0;
  virtual void alive() {}  // from any thread: a long phase is at work (ShardContext::alive())
};

}  // namespace tandem
