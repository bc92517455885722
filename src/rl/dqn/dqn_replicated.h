// rl/dqn/dqn_replicated.h -- what every worker holds alike of the agents on a GPU, in one block with a twin in pinned
// host memory: what a step's totals change reaches the GPU by one copy that nobody waits for.
//
// The host's part may be written once the GPU has done what was queued before: the end of every phase.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>

#include "engine/mirror.h"

namespace tandem {

class DqnReplicated {
 public:
  DqnReplicated(int agents, int64_t shards, int64_t batch);

  // ---- an agent's tensors on the device; they keep the memory ----
  at::Tensor priority_sums(int agent) const;   // [shards]
  at::Tensor priority_range(int agent) const;  // [2]: the largest one seen, the least one drawn
  at::Tensor td_errors(int agent) const;       // [batch]

  // ---- the same on the host: written there, then uploaded for all agents ----
  std::span<int64_t> host_priority_sums(int agent);
  std::span<int64_t> host_priority_range(int agent);
  std::span<float> host_td_errors(int agent);
  void queue_priority_sums() { queue_up(0, ranges_); }
  void queue_priority_ranges() { queue_up(ranges_, errors_); }
  void queue_td_errors() { queue_up(errors_, memory_->size()); }
  void queue_priority_ranges_and_td_errors() { queue_up(ranges_, memory_->size()); }

  // The ranges come to the host with what acting reports. After a wait they are those of this step.
  void queue_fetch_ranges();
  void ranges_fetched(int64_t step) { step_of_ranges_ = step; }
  void need_ranges(int64_t step);  // fetches them unless they are

 private:
  template <class T>
  at::Tensor tensor(size_t first, int agent, int64_t count) const;
  void queue_up(size_t first, size_t last);

  int64_t shards_, batch_;
  size_t ranges_, errors_;  // where they begin; the sums begin the block
  std::shared_ptr<Mirror> memory_;
  int64_t step_of_ranges_ = -1;
};

}  // namespace tandem
