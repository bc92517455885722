// engine/phase_outputs.h -- what the shards of a phase report from a GPU, in one block that one copy brings to the
// host.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/mirror.h"
#include "kernels/update_decision.h"

namespace tandem {

// What a phase reports: the index of a NaN and integer sums of each shard, and the update decision; where the GPUs sum
// by themselves, also the integers of all workers, and whether that sum may be applied.
class PhaseOutputs {
 public:
  PhaseOutputs(int shards, int counts, int floats, int integers = 0);
  void queue_clear();
  // Fetches everything; `floats`: the recipe's sums in the total, on the GPU, or null.
  void queue_fetch(const float* floats);

  std::span<int64_t> bad_on_gpu() const;
  int64_t* bad_on_gpu(int index) const { return bad_on_gpu().data() + index; }
  at::Tensor counts_on_gpu(int index) const;
  const int64_t* counted_on_gpu() const { return bad_on_gpu().data() + shards_; }  // [shards][counts]
  std::span<int64_t> hold_on_gpu() const;                                          // one word; -1: it may be applied
  void queue_clear_hold();
  int64_t* totals_on_gpu() const;  // [integers]
  UpdateDecision* decision_on_gpu() const { return reinterpret_cast<UpdateDecision*>(memory_.on_gpu()); }

  // After queue_fetch() and a wait:
  const UpdateDecision& decision() { return *reinterpret_cast<UpdateDecision*>(memory_.on_host()); }
  int64_t bad(int index) { return words()[index]; }
  std::span<const int64_t> counts(int index) { return words().subspan(shards_ + index * counts_, counts_); }
  std::span<const int64_t> totals() { return words().subspan(shards_ + shards_ * counts_, integers_); }
  std::span<const float> floats();

 private:
  std::span<int64_t> words();
  size_t shards_, counts_, floats_, integers_;
  Mirror memory_;
};

}  // namespace tandem
