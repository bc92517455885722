// engine/shard_plan.h -- which worker computes which shards.
//
// The recipe fixes the number of shards; the machine does not. A shard keeps its samples and its random stream wherever
// it runs, so a run may lose a device, or resume on fewer, and keep its bits. A worker gets one contiguous range, so
// that it holds few subtrees of the sum.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "reduce/shard_range.h"

namespace tandem {

class ShardPlan {
 public:
  // Faster workers take more shards; ties go to the lower index; every worker gets at least one. Throws ConfigError if
  // there are more workers than shards.
  static ShardPlan balance(int shards, std::span<const double> speeds);

  int workers() const { return static_cast<int>(ranges_.size()); }
  ShardRange range(int worker) const { return ranges_.at(worker); }
  const std::vector<ShardRange>& ranges() const { return ranges_; }
  // Share of the summed speed that whole shards allow: 24 shards on 5 equal workers reach 0.96.
  double efficiency() const { return efficiency_; }
  // "24 shards on 3 workers: 8 8 8"
  std::string text() const;

 private:
  std::vector<ShardRange> ranges_;
  double efficiency_ = 1;
};

}  // namespace tandem
