// engine/input_staging.h -- the inputs of a captured phase, at fixed addresses on the GPU.
//
// Small inputs are copied into one block of pinned memory, which one copy brings to the GPU as the step begins. Batches
// of declared fields that are large lie in pinned memory already (engine/batch_maker.h): these are uploaded from there,
// while the GPU still works on the step before (engine/batch_uploads.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/batch.h"
#include "engine/batch_uploads.h"
#include "engine/mirror.h"
#include "kernels/random_source.h"
#include "kernels/update_decision.h"

namespace tandem {

// The inputs of all micro-batches of all shards of one phase, and the parameters of the update.
class InputStaging {
 public:
  // Sizes are those of `first`, the inputs of one micro-batch; every micro-batch has the same. `batch`: the one whose
  // tensors and weight `first` begins with, if it does. With `uploads`, and if that batch is pinned, batches are
  // uploaded from where they lie. Everything on the GPU is zero at first: labels and row numbers that there are.
  InputStaging(int micro_batches, const std::vector<at::Tensor>& first, const Batch* batch = nullptr,
               std::unique_ptr<CopyStream> uploads = nullptr);
  bool fits(const std::vector<at::Tensor>& tensors) const;  // the same sizes, and in host memory
  // For the next queue_up(copy). A batch may be given back at once: what is read later is held.
  void put(int copy, int micro_batch, const RandomKey& key, const std::vector<at::Tensor>& tensors,
           const Batch* batch = nullptr);
  void put(int copy, const UpdateParams& params);
  // Work that is queued from now on finds what was put for `copy`. There are two, so that the next step's inputs can be
  // put while this one's are copied.
  void queue_up(int copy);
  void queue_up_params(int copy);  // of the update, alone

  const RandomKey* key(int micro_batch) const;
  const UpdateParams* params() const { return reinterpret_cast<const UpdateParams*>(memory_.on_gpu()); }
  at::Tensor loss_scale() const;
  const std::vector<at::Tensor>& tensors(int micro_batch) const { return tensors_[micro_batch]; }
  bool uploads_batches() const { return uploads_ != nullptr; }

 private:
  size_t tensor_offset(int micro_batch) const {
    return keys_end_ + static_cast<size_t>(micro_batch) * micro_batch_bytes_;
  }
  bool in_one_block(const std::vector<at::Tensor>& tensors, const Batch* batch) const;
  void upload(int copy, int micro_batch, const std::vector<at::Tensor>& tensors, const Batch* batch);

  size_t uploaded_;              // so many tensors of a micro-batch, the first ones, are uploaded from where they lie
  std::vector<size_t> offsets_;  // of a micro-batch's tensors: among those uploaded, or among those copied
  size_t keys_end_, micro_batch_bytes_;
  Mirror memory_;
  std::unique_ptr<BatchUploads> uploads_;
  std::vector<std::vector<at::Tensor>> tensors_;  // on the GPU
};

}  // namespace tandem
