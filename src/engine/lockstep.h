// engine/lockstep.h -- runs the local shards of a phase side by side, with all-reduces inside the phase (sync_bn).
//
// Every shard has a thread, but only one runs at a time: each runs until its next all-reduce or its end, then passes
// the turn. When all wait, their values are summed along the tree (Combine::all_reduce) and each goes on with the
// total. All shards must call all_reduce() equally often. An error in one ends all: it is thrown by run().
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

namespace tandem {

class Lockstep {
 public:
  // Sums the values of this process's shards (over all workers where there are several).
  using Sum = std::function<void(std::span<const int> shards, std::span<const std::span<double>> values)>;
  explicit Lockstep(Sum sum) : sum_(std::move(sum)) {}

  // body(i) runs shards[i]; turn(i) is called, in that shard's thread, each time it gets its turn.
  void run(std::span<const int> shards, const std::function<void(int)>& body, const std::function<void(int)>& turn);

  // Inside body(): replaces the values by their sum over all shards.
  void all_reduce(std::span<double> values);

 private:
  enum class Where { kRunning, kWaiting, kDone };
  void pass_turn(std::unique_lock<std::mutex>& lock);

  Sum sum_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> shards_;
  std::vector<Where> where_;
  std::vector<std::span<double>> values_;
  std::function<void(int)> turn_;
  int running_ = 0;  // whose turn it is
  std::exception_ptr error_;
};

}  // namespace tandem
