// engine/batch.h -- samples as tensors, and where they come from.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "engine/epoch_sampler.h"
#include "kernels/philox.h"

namespace tandem {

struct Batch {
  std::vector<at::Tensor> tensors;  // what load() made: inputs, labels, ...; first dimension = rows of the micro-batch
  at::Tensor weight;                // float [rows]: 1 for a real row, 0 for padding
  Slice slice;
};

// A set of samples that can be had by number. load() is called from loader threads, several at the same time, for any
// step ahead: it must be a pure function of its arguments. `random` is the stream for augmentation.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual std::vector<at::Tensor> load(std::span<const int64_t> samples, const RandomKey& random) const = 0;
};

}  // namespace tandem
