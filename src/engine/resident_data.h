// engine/resident_data.h -- a data set that lies on the device for good.
//
// All samples are loaded once, by loader threads; a batch is then the numbers of its rows, and the rows are gathered on
// the device. The bits are those of loading batch by batch, padding included: a slice names the rows that pad it. What
// lies here is in no checkpoint.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/batch.h"

namespace tandem {

class GpuDevice;

class ResidentData {
 public:
  // Throws ConfigError where the data set has no fields, or where a sample is another in another epoch: a few samples
  // are loaded for two. So many threads load chunks of about that size; alive() is called before each
  // sample, from any of them.
  ResidentData(const Dataset& data, uint64_t seed, int threads, const std::function<void()>& alive = {},
               size_t chunk_bytes = size_t{16} << 20);
  // Puts the fields of the batch's rows, on the device as the row numbers are, in the place of the numbers. The same
  // operations at every step: they may be captured.
  void expand(Batch& batch) const;

  static size_t bytes_of(const Dataset& data);

 private:
  std::vector<DataField> fields_;
  std::vector<at::Tensor> rows_;  // of each field: [samples, words], words as wide as a row allows
};

// What resident data may take: half of the GPU's free memory; on a CPU, half of this worker's share of the machine's.
size_t room_for_resident(const GpuDevice* gpu);

// Of a batch of row numbers; any other stays as it is.
void expand_resident(Batch& batch);

}  // namespace tandem
