// reduce/shard_range.h -- the contiguous shards [first, last) that one worker computes.
#pragma once

namespace tandem {

struct ShardRange {
  int first = 0, last = 0;
  int size() const { return last - first; }
  bool operator==(const ShardRange&) const = default;
};

}  // namespace tandem
