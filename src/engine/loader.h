// engine/loader.h -- batches made ahead of time by threads.
//
// A batch is a pure function of (seed, step, shard, micro-batch), so threads and prefetch change when it is made, never
// what is in it: 0 threads, 1 and 8 give the same bits.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "engine/batch.h"

namespace tandem {

struct LoadKey {
  int64_t step = 0, shard = 0, micro_batch = 0;
  auto operator<=>(const LoadKey&) const = default;
};

// How batches are made: of every eighth one the time it took, and how much of that its thread slept, for a disk or a
// network. More threads shorten that; work of a core they shorten only where a core is free.
class MakeTimes {
 public:
  Batch measured(const std::function<Batch()>& make);
  double seconds() const { return static_cast<double>(made_ns_.load(std::memory_order_relaxed)) * 1e-9; }
  double asleep_seconds() const { return static_cast<double>(asleep_ns_.load(std::memory_order_relaxed)) * 1e-9; }

 private:
  std::atomic<uint64_t> batches_{0}, made_ns_{0}, asleep_ns_{0};
};

class Loader {
 public:
  using Make = std::function<Batch(const LoadKey&)>;
  using Next = std::function<LoadKey(const LoadKey&)>;  // which one the loop will ask for after this one
  // `most_bytes`: of the batches made ahead; two are, however large.
  Loader(Make make, Next next, int threads, int prefetch, size_t most_bytes = SIZE_MAX);
  ~Loader();

  Batch get(const LoadKey& key);
  double wait_seconds() const { return wait_seconds_; }  // how long get() waited in all

 private:
  struct Entry {
    bool ready = false, taken = false;
    Batch batch;
    std::exception_ptr error;
  };
  void work();

  Make make_;
  Next next_;
  size_t prefetch_, most_bytes_;
  std::mutex mutex_;
  std::condition_variable wanted_, ready_;
  std::map<LoadKey, Entry> entries_;
  std::deque<LoadKey> queue_;
  bool stop_ = false;
  double wait_seconds_ = 0;
  size_t largest_ = 0;  // batch so far
  std::vector<std::thread> threads_;
};

}  // namespace tandem
