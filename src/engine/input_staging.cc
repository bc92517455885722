#include "engine/input_staging.h"

#include <ATen/ATen.h>

#include <cstring>

#include "nn/here.h"

namespace tandem {
namespace {

// As libtorch's allocator aligns: libraries choose kernels by alignment, and bits follow kernels.
constexpr size_t kAlign = 512;

size_t aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// Bytes of the tensors from `first` to `last`, one behind the other.
size_t staged_bytes(const std::vector<at::Tensor>& tensors, size_t first, size_t last) {
  size_t bytes = 0;
  for (size_t i = first; i < last; ++i) bytes += aligned(tensors[i].nbytes());
  return bytes;
}

constexpr size_t kScaleOffset = (sizeof(UpdateParams) + 63) / 64 * 64, kKeysOffset = kScaleOffset + 64;

}  // namespace

InputStaging::InputStaging(int micro_batches, const std::vector<at::Tensor>& first, const Batch* batch,
                           std::unique_ptr<CopyStream> uploads)
    : uploaded_(batch && batch->block.pinned && uploads ? batch->tensors.size() + 1 : 0),
      keys_end_(aligned(kKeysOffset + static_cast<size_t>(micro_batches) * sizeof(RandomKey))),
      micro_batch_bytes_(staged_bytes(first, uploaded_, first.size())),
      memory_(keys_end_ + static_cast<size_t>(micro_batches) * micro_batch_bytes_, /*host_copies=*/2),
      tensors_(micro_batches) {
  device().zero(memory_.on_gpu(), memory_.size());
  if (uploaded_ > 0)
    uploads_ =
        std::make_unique<BatchUploads>(device(), std::move(uploads), micro_batches, staged_bytes(first, 0, uploaded_));
  for (size_t i = 0; i < first.size(); ++i) {
    offsets_.push_back(staged_bytes(first, i < uploaded_ ? 0 : uploaded_, i));
    for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
      std::byte* const memory =
          i < uploaded_ ? uploads_->on_gpu(micro_batch) : memory_.on_gpu() + tensor_offset(micro_batch);
      tensors_[micro_batch].push_back(
          at::from_blob(memory + offsets_[i], first[i].sizes(), here(first[i].scalar_type())));
    }
  }
}

bool InputStaging::fits(const std::vector<at::Tensor>& tensors) const {
  bool fits = tensors.size() == offsets_.size();
  for (size_t i = 0; fits && i < tensors.size(); ++i)
    fits = tensors[i].is_cpu() && tensors[i].sizes() == tensors_[0][i].sizes() &&
           tensors[i].scalar_type() == tensors_[0][i].scalar_type();
  return fits;
}

void InputStaging::put(int copy, int micro_batch, const RandomKey& key, const std::vector<at::Tensor>& tensors,
                       const Batch* batch) {
  std::memcpy(memory_.on_host(copy) + kKeysOffset + static_cast<size_t>(micro_batch) * sizeof(RandomKey), &key,
              sizeof(key));
  if (uploads_) upload(copy, micro_batch, tensors, batch);
  for (size_t i = uploaded_; i < tensors.size(); ++i) {
    const at::Tensor flat = tensors[i].contiguous();
    std::memcpy(memory_.on_host(copy) + tensor_offset(micro_batch) + offsets_[i], flat.data_ptr(), flat.nbytes());
  }
}

// As BatchMaker lays them out: the block can go as it is.
bool InputStaging::in_one_block(const std::vector<at::Tensor>& tensors, const Batch* batch) const {
  if (!batch || !batch->block.memory || batch->tensors.size() + 1 != uploaded_) return false;
  for (size_t i = 0; i < uploaded_; ++i)
    if (!tensors[i].is_contiguous() || tensors[i].data_ptr() != batch->block.memory.get() + offsets_[i]) return false;
  return true;
}

void InputStaging::upload(int copy, int micro_batch, const std::vector<at::Tensor>& tensors, const Batch* batch) {
  if (in_one_block(tensors, batch)) {
    const size_t bytes = offsets_[uploaded_ - 1] + tensors[uploaded_ - 1].nbytes();
    return uploads_->put(copy, micro_batch, 0, batch->block.memory.get(), bytes, batch->block.memory);
  }
  for (size_t i = 0; i < uploaded_; ++i) {
    const auto flat = std::make_shared<const at::Tensor>(tensors[i].contiguous());
    uploads_->put(copy, micro_batch, offsets_[i], flat->data_ptr(), flat->nbytes(), flat);
  }
}

void InputStaging::queue_up(int copy) {
  memory_.queue_up(copy);
  if (uploads_) uploads_->queue_up(copy);
}

void InputStaging::put(int copy, const UpdateParams& params) {
  std::memcpy(memory_.on_host(copy), &params, sizeof(params));
  const float scale = static_cast<float>(params.loss_scale);
  std::memcpy(memory_.on_host(copy) + kScaleOffset, &scale, sizeof(scale));
}

void InputStaging::queue_up_params(int copy) { memory_.queue_up(copy, kKeysOffset); }

const RandomKey* InputStaging::key(int micro_batch) const {
  return reinterpret_cast<const RandomKey*>(memory_.on_gpu() + kKeysOffset) + micro_batch;
}

at::Tensor InputStaging::loss_scale() const { return at::from_blob(memory_.on_gpu() + kScaleOffset, {}, here()); }

}  // namespace tandem
