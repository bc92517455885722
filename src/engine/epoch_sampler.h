// engine/epoch_sampler.h -- which samples a shard sees at a step: a pure function, so a resume needs no saved position.
//
// An epoch visits every sample exactly once, in an order keyed by (seed, epoch). The rule for the remainder: an epoch
// has ceil(size / batch) updates; where the last batch is short, the missing rows are filled with other rows of that
// batch (so that batch statistics stay those of real samples) and carry weight 0. Counts are integers.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

// One shard's slice of one update (or of one of its micro-batches).
struct Slice {
  int64_t epoch = 0;
  std::vector<int64_t> samples;  // always micro_batch_size of them
  int64_t real = 0;              // the first `real` ones count, the others are padding
  int64_t real_in_update = 0;    // over all shards and micro-batches: what a mean divides by
};

class EpochSampler {
 public:
  // batch = shards * accumulation * micro_batch_size.
  EpochSampler(int64_t size, int64_t shards, int64_t accumulation, int64_t micro_batch_size, uint64_t seed);

  int64_t updates_per_epoch() const { return updates_per_epoch_; }
  int64_t epoch_of(int64_t step) const { return step / updates_per_epoch_; }
  int64_t real_in_update(int64_t step) const;  // rows of this update that count
  bool is_full(int64_t step) const { return real_in_update(step) == batch_; }
  Slice slice(int64_t step, int64_t shard, int64_t micro_batch) const;  // step counts updates from 0

 private:
  int64_t size_, accumulation_, micro_batch_size_, batch_, updates_per_epoch_;
  uint64_t seed_;
};

}  // namespace tandem
