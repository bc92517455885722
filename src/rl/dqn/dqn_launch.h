// rl/dqn/dqn_launch.h -- tables and memory of a set of launches (rl/dqn/dqn_gpu.h) over a range of shards.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "rl/dqn/dqn_gpu.h"

namespace tandem {

struct DqnLaunch {
  DqnShape shape;
  DqnOffsets offsets;
  DqnWork work;
  std::vector<at::Tensor> memory;

  size_t draws() const { return static_cast<size_t>(shape.agents) * static_cast<size_t>(shape.batch); }
  void* take(size_t bytes);  // memory of its own on the device, zero at first
};

// Sets the pointers of `work` to memory that `take` gives: what a step needs from the host, the parameters first; what
// acting reports to it.
using TakeMemory = std::function<void*(size_t bytes)>;
void lay_out_inputs(const DqnShape& shape, DqnWork& work, const TakeMemory& take);
void lay_out_acted(const DqnShape& shape, DqnWork& work, const TakeMemory& take);

}  // namespace tandem
