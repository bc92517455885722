// engine/shard_groups.h -- how many shards of a phase run in one pass, and whether that gives the bits of one by one.
//
// As many as memory allows. In the phase's second run here, and when it runs for the 16th, 32nd, 64th, ... time and
// every 4,096 times, all shards run both ways, and their sums are compared. At first, what differs falls back: the
// layer whose rows came out otherwise runs its shards one by one inside the pass, and where the difference arises
// between layers, the whole phase does; the run says which and why. A pass that has served and differs later ends the
// run, which says where and since when (engine/suspect_error.h). What a phase changes of its shards' state on the
// device is compared too, and put back; what changes any without saying so is refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/phase_run.h"
#include "engine/shard_runner.h"

namespace tandem {

class ShardGroups {
 public:
  ShardGroups(ShardRunner& shards, const PhaseRun& run);
  // Shards to a pass now; compares before, where that is due.
  int size(const PhaseRun& run);
  // Compares in any case, unless the phase runs one by one. Throws SuspectError where what agreed before differs.
  void compare(const PhaseRun& run);
  bool possible() const { return why_not_.empty(); }
  // The last step with an equal comparison, of these passes or of a graph with them.
  void was_equal(int64_t step) { equal_at_ = step; }
  std::optional<int64_t> last_equal() const { return equal_at_; }
  int64_t equal_at() const { return equal_at_.value_or(0); }

 private:
  using Bits = std::vector<uint64_t>;
  class Trace;
  struct Difference {
    bool again = true;            // it shows again
    ShardAware* layer = nullptr;  // whose rows differ though it got the same; null: it arises elsewhere
    std::string layer_name, what, words;
  };
  Bits run_all(const PhaseRun& run, int size, Trace* trace = nullptr);  // all shards; what they gave
  int by_memory(size_t pass_bytes) const;
  void compare_with(const PhaseRun& run, const Bits& alone);
  Difference find_difference(const PhaseRun& run);
  void fall_back(const PhaseRun& run);
  [[noreturn]] void differs_now(const PhaseRun& run);
  void one_by_one(const PhaseRun& run, const std::string& why);

  ShardRunner& shards_;
  std::string why_not_;  // not empty: one by one
  int size_ = 0;         // 0: not known yet
  bool agreed_ = false;
  std::optional<int64_t> equal_at_;
};

}  // namespace tandem
