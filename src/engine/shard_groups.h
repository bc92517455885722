// engine/shard_groups.h -- how many shards of a phase run in one pass, and whether that gives the bits of one by one.
//
// As many as memory allows. In the phase's second run here, and when it runs for the 16th, 32nd, 64th, ... time, all
// shards run both ways, and their sums are compared. At first, what differs falls back: the layer whose rows came out
// otherwise runs its shards one by one inside the pass, and where the difference arises between layers, the whole phase
// does; the run says which and why. A pass that has served and differs later ends the run. What a phase changes of its
// shards' state on the device is compared too, and put back.
#pragma once

#include <cstdint>
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
  // Compares in any case, unless the phase runs one by one.
  void compare(const PhaseRun& run);
  bool possible() const { return why_not_.empty(); }

 private:
  using Bits = std::vector<uint64_t>;
  class Trace;
  Bits run_all(const PhaseRun& run, int size, Trace* trace = nullptr);  // all shards; what they gave
  int by_memory(size_t pass_bytes) const;
  void compare_with(const PhaseRun& run, const Bits& alone);
  void fall_back(const PhaseRun& run, const Bits& alone, const Bits& together);
  void one_by_one(const PhaseRun& run, const std::string& why);

  ShardRunner& shards_;
  std::string why_not_;  // not empty: one by one
  int size_ = 0;         // 0: not known yet
  bool agreed_ = false;
};

}  // namespace tandem
