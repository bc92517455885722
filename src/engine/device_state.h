// engine/device_state.h -- what a phase that changes its shards' state on the device has there: saved before it runs
// twice to be compared, and put back between.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "engine/shard_runner.h"

namespace tandem {

class DeviceState {
 public:
  explicit DeviceState(ShardRunner& shards) : shards_(shards) {}
  // On the device where there is room, else in host memory.
  std::vector<at::Tensor> saved() const;
  void restore(const std::vector<at::Tensor>& saved) const;  // of saved(); of none: nothing
  std::vector<uint64_t> bits() const;                        // a hash of each field

 private:
  ShardRunner& shards_;
};

}  // namespace tandem
