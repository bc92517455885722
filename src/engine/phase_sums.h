// engine/phase_sums.h -- what the shards of a phase report beside their vectors: counts, and where a NaN is.
//
// On a CPU it is in host memory at once. On a GPU it stays there until one copy brings it all (queue_fetch()).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>

#include "engine/phase_outputs.h"
#include "engine/recipe.h"
#include "kernels/device.h"

namespace tandem {

class PhaseSums {
 public:
  virtual ~PhaseSums() = default;
  virtual void begin() = 0;  // clears everything
  // Where ShardContext::add() and count() add; undefined: to the host's sums.
  virtual at::Tensor floats(std::span<float> tail) { return {}; }
  virtual at::Tensor counts_to(int index) { return {}; }
  // The host's floats of a shard, into the end of its vector.
  virtual void put_floats(std::span<const float> host, std::span<float> tail, bool capturing) = 0;
  virtual void find_nonfinite(int index, std::span<const float> vector) = 0;
  virtual void queue_fetch() {}        // after it and a wait:
  virtual int64_t bad(int index) = 0;  // the first NaN or Inf of a shard's vector; -1: none
  virtual std::span<const int64_t> counts(int index) { return {}; }
  virtual PhaseOutputs* outputs() { return nullptr; }  // of a GPU
};

std::unique_ptr<PhaseSums> make_host_sums(int shards, Device& device);
std::unique_ptr<PhaseSums> make_gpu_sums(int shards, const Phase& phase, Device& device);

}  // namespace tandem
