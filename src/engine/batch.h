// engine/batch.h -- samples as tensors, and where they come from.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/batch_buffers.h"
#include "engine/data_fields.h"
#include "engine/epoch_sampler.h"
#include "kernels/philox.h"

namespace tandem {

class ResidentData;

struct Batch {
  std::vector<at::Tensor> tensors;  // one for each field, or what load() made; first dimension = micro-batch rows
  at::Tensor weight;                // float [rows]: 1 for a real row, 0 for padding
  Slice slice;
  std::shared_ptr<const ResidentData> resident;  // not null: `tensors` are the numbers of the rows, int64 [rows], alone
  BatchBlock block;  // of a batch whose tensors and weight lie in one (engine/batch_maker.h)
};

// A set of samples that can be had by number, in one of two ways:
//   load()                     makes the tensors of a batch. `random` is the batch's stream for augmentation.
//   fields() and load_into()   writes one sample straight into the batch's memory. `random` is the sample's stream.
// Both are called from loader threads, several at the same time, for any step ahead: they must be pure functions of
// their arguments. Every batch has the same tensors: their number, types and shapes; engine/batch_maker.h checks it.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual std::string name() const { return ""; }  // for messages
  // At most 63. None, the default: load() makes the tensors.
  virtual std::vector<DataField> fields() const { return {}; }
  virtual void load_into(SampleWriter& out, const RandomKey& random) const;
  // Asks that all samples be loaded once and stay on the device (engine/resident_data.h). For data with fields() whose
  // samples don't depend on `random` or on the epoch.
  virtual bool resident() const { return false; }
  // The default makes tensors of what load_into() writes, in epoch 0, for those who want samples without a loader.
  virtual std::vector<at::Tensor> load(std::span<const int64_t> samples, const RandomKey& random) const;
};

}  // namespace tandem
