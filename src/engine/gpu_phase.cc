#include "engine/gpu_phase.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstring>
#include <new>

#include "base/errors.h"
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

constexpr size_t kDecisionBytes = 64, kScaleOffset = (sizeof(UpdateParams) + 63) / 64 * 64,
                 kKeysOffset = kScaleOffset + 64;
static_assert(sizeof(UpdateDecision) <= kDecisionBytes);

}  // namespace

Mirror::Mirror(size_t bytes, int host_copies) : bytes_(bytes), gpu_(nullptr), host_(nullptr, &std::free) {
  constexpr size_t kPage = 4096;
  const size_t all = (bytes * static_cast<size_t>(host_copies) + kPage) / kPage * kPage;
  host_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, all)));
  if (!host_) throw std::bad_alloc();
  std::memset(host_.get(), 0, all);
  gpu_ = static_cast<std::byte*>(device().allocate(bytes));
  device().pin(host_.get(), all);
}

Mirror::~Mirror() {
  device().unpin(host_.get());
  device().release(gpu_);
}

PhaseOutputs::PhaseOutputs(int shards, int counts, int floats)
    : shards_(shards),
      counts_(counts),
      floats_(floats),
      memory_(kDecisionBytes + (shards_ + shards_ * counts_) * sizeof(int64_t) + floats_ * sizeof(float)) {}

void PhaseOutputs::queue_clear() {
  device().fill_ones(bad_on_gpu().data(), bad_on_gpu().size_bytes());
  const size_t done = kDecisionBytes + shards_ * sizeof(int64_t);
  device().zero(memory_.on_gpu() + done, memory_.size() - done);
}

void PhaseOutputs::queue_fetch(const float* floats) {
  if (floats)
    device().copy(memory_.on_gpu() + memory_.size() - floats_ * sizeof(float), floats, floats_ * sizeof(float));
  memory_.queue_down();
}

std::span<int64_t> PhaseOutputs::bad_on_gpu() const {
  return {reinterpret_cast<int64_t*>(memory_.on_gpu() + kDecisionBytes), shards_};
}

at::Tensor PhaseOutputs::counts_on_gpu(int index) const {
  int64_t* first = bad_on_gpu().data() + shards_ + static_cast<size_t>(index) * counts_;
  return at::from_blob(first, {static_cast<int64_t>(counts_)}, here(at::kLong));
}

std::span<int64_t> PhaseOutputs::words() {
  return {reinterpret_cast<int64_t*>(memory_.on_host() + kDecisionBytes), shards_ + shards_ * counts_};
}

std::span<const float> PhaseOutputs::floats() {
  return {reinterpret_cast<float*>(memory_.on_host() + memory_.size() - floats_ * sizeof(float)), floats_};
}

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

std::string eager_asked_for() {
  const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  const char* asked = std::getenv("TANDEM_GRAPHS");
  const std::string_view graphs = asked && *asked ? asked : "on";
  if (graphs != "on" && graphs != "off")
    throw ConfigError(fmt::format("TANDEM_GRAPHS={} is not known", graphs), "it is on or off", "set one of these");
  if (blocking && std::string_view(blocking) == "1") return "CUDA_LAUNCH_BLOCKING=1";
  if (graphs == "off") return "TANDEM_GRAPHS=off";
  return "";
}

}  // namespace tandem
