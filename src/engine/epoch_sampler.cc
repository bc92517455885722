#include "engine/epoch_sampler.h"

#include <algorithm>

#include "kernels/permutation.h"

namespace tandem {

EpochSampler::EpochSampler(int64_t size, int64_t shards, int64_t accumulation, int64_t micro_batch_size, uint64_t seed)
    : size_(size),
      accumulation_(accumulation),
      micro_batch_size_(micro_batch_size),
      batch_(shards * accumulation * micro_batch_size),
      updates_per_epoch_((size + batch_ - 1) / batch_),
      seed_(seed) {}

int64_t EpochSampler::real_in_update(int64_t step) const {
  return std::min(batch_, size_ - (step % updates_per_epoch_) * batch_);
}

Slice EpochSampler::slice(int64_t step, int64_t shard, int64_t micro_batch) const {
  Slice slice;
  slice.epoch = epoch_of(step);
  const int64_t start = (step % updates_per_epoch_) * batch_;  // of this update in the epoch
  slice.real_in_update = real_in_update(step);
  const Permutation order(size_, seed_, slice.epoch);
  // A shard's rows are contiguous in the batch, its micro-batches one after the other.
  const int64_t first = (shard * accumulation_ + micro_batch) * micro_batch_size_;
  slice.real = std::clamp<int64_t>(slice.real_in_update - first, 0, micro_batch_size_);
  slice.samples.reserve(micro_batch_size_);
  for (int64_t i = 0; i < micro_batch_size_; ++i)
    slice.samples.push_back(static_cast<int64_t>(order.at(start + (first + i) % slice.real_in_update)));
  return slice;
}

}  // namespace tandem
