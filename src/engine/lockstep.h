// engine/lockstep.h -- runs the local shards of a phase side by side, so that they can meet half-way (sync_bn).
//
// Every shard has a thread, but only one runs at a time: each runs until it meets or ends, then hands over to the next.
// When all have met, their values are summed along the tree (Combine::meet) and each goes on with the total. All shards
// must meet equally often. An error in one ends all: it is thrown by run().
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
  // Sums what the members of this process give (over all workers where there are several).
  using Sum = std::function<void(std::span<const int> shards, std::span<const std::span<double>> values)>;
  explicit Lockstep(Sum sum) : sum_(std::move(sum)) {}

  // body(i) runs shards[i]; turn(i) is called, in that shard's thread, each time it gets the word.
  void run(std::span<const int> shards, const std::function<void(int)>& body, const std::function<void(int)>& turn);

  // Inside body(): replaces the values by their sum over all shards.
  void meet(std::span<double> values);

 private:
  enum class Where { kRunning, kMet, kDone };
  void hand_over(std::unique_lock<std::mutex>& lock);

  Sum sum_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> shards_;
  std::vector<Where> where_;
  std::vector<std::span<double>> values_;
  std::function<void(int)> turn_;
  int speaker_ = 0;
  std::exception_ptr error_;
};

}  // namespace tandem
