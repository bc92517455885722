#include "engine/input_staging.h"

#include <ATen/ATen.h>

#include <cstring>

#include "nn/here.h"

namespace tandem {
namespace {

// As libtorch's allocator aligns: libraries choose kernels by alignment, and bits follow kernels.
constexpr size_t kAlign = 512;

size_t aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

size_t micro_batch_bytes(const std::vector<at::Tensor>& tensors) {
  size_t bytes = 0;
  for (const at::Tensor& t : tensors) bytes += aligned(t.nbytes());
  return bytes;
}

constexpr size_t kScaleOffset = (sizeof(UpdateParams) + 63) / 64 * 64, kKeysOffset = kScaleOffset + 64;

}  // namespace

InputStaging::InputStaging(int micro_batches, const std::vector<at::Tensor>& first)
    : micro_batches_(micro_batches),
      keys_end_(aligned(kKeysOffset + static_cast<size_t>(micro_batches) * sizeof(RandomKey))),
      micro_batch_bytes_(micro_batch_bytes(first)),
      memory_(keys_end_ + static_cast<size_t>(micro_batches) * micro_batch_bytes_, /*host_copies=*/2),
      tensors_(micro_batches) {
  size_t offset = 0;
  for (const at::Tensor& t : first) {
    offsets_.push_back(offset);
    for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch)
      tensors_[micro_batch].push_back(
          at::from_blob(memory_.on_gpu() + tensor_offset(micro_batch) + offset, t.sizes(), here(t.scalar_type())));
    offset += aligned(t.nbytes());
  }
}

bool InputStaging::fits(const std::vector<at::Tensor>& tensors) const {
  bool fits = tensors.size() == offsets_.size();
  for (size_t i = 0; fits && i < tensors.size(); ++i)
    fits = tensors[i].is_cpu() && tensors[i].sizes() == tensors_[0][i].sizes() &&
           tensors[i].scalar_type() == tensors_[0][i].scalar_type();
  return fits;
}

void InputStaging::put(int copy, int micro_batch, const RandomKey& key, const std::vector<at::Tensor>& tensors) {
  std::memcpy(memory_.on_host(copy) + kKeysOffset + static_cast<size_t>(micro_batch) * sizeof(RandomKey), &key,
              sizeof(key));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor flat = tensors[i].contiguous();
    std::memcpy(memory_.on_host(copy) + tensor_offset(micro_batch) + offsets_[i], flat.data_ptr(), flat.nbytes());
  }
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
