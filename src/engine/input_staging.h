// engine/input_staging.h -- the inputs of a captured phase, at fixed addresses on the GPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/mirror.h"
#include "kernels/random_source.h"
#include "kernels/update_decision.h"

namespace tandem {

// The inputs of all micro-batches of all shards of one phase, and the parameters of the update.
class InputStaging {
 public:
  // Sizes are those of `first`, the inputs of one micro-batch; every micro-batch has the same.
  InputStaging(int micro_batches, const std::vector<at::Tensor>& first);
  bool fits(const std::vector<at::Tensor>& tensors) const;  // the same sizes, and in host memory
  void put(int copy, int micro_batch, const RandomKey& key, const std::vector<at::Tensor>& tensors);
  void put(int copy, const UpdateParams& params);
  void queue_up(int copy) { memory_.queue_up(copy); }
  void queue_up_params(int copy);  // of the update, alone

  const RandomKey* key(int micro_batch) const;
  const UpdateParams* params() const { return reinterpret_cast<const UpdateParams*>(memory_.on_gpu()); }
  at::Tensor loss_scale() const;
  const std::vector<at::Tensor>& tensors(int micro_batch) const { return tensors_[micro_batch]; }

 private:
  size_t tensor_offset(int micro_batch) const {
    return keys_end_ + static_cast<size_t>(micro_batch) * micro_batch_bytes_;
  }
  int micro_batches_;
  size_t keys_end_, micro_batch_bytes_;
  std::vector<size_t> offsets_;  // of a micro-batch's tensors
  Mirror memory_;
  std::vector<std::vector<at::Tensor>> tensors_;  // on the GPU
};

}  // namespace tandem
