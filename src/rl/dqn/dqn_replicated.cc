#include "rl/dqn/dqn_replicated.h"

#include <ATen/ATen.h>

#include "nn/here.h"

namespace tandem {
namespace {

// An agent's row begins at a multiple of this, as tensors of their own do.
constexpr size_t kRowAlign = 64;
size_t row_bytes(int64_t count, size_t each) {
  return (static_cast<size_t>(count) * each + kRowAlign - 1) / kRowAlign * kRowAlign;
}

template <class T>
std::span<T> row_of(std::byte* rows, int agent, int64_t count) {
  return {reinterpret_cast<T*>(rows + static_cast<size_t>(agent) * row_bytes(count, sizeof(T))),
          static_cast<size_t>(count)};
}

}  // namespace

DqnReplicated::DqnReplicated(int agents, int64_t shards, int64_t batch)
    : shards_(shards),
      batch_(batch),
      ranges_(static_cast<size_t>(agents) * row_bytes(shards, sizeof(int64_t))),
      errors_(ranges_ + static_cast<size_t>(agents) * row_bytes(2, sizeof(int64_t))),
      memory_(std::make_shared<Mirror>(errors_ + static_cast<size_t>(agents) * row_bytes(batch, sizeof(float)))) {}

template <class T>
at::Tensor DqnReplicated::tensor(size_t first, int agent, int64_t count) const {
  return at::from_blob(
      row_of<T>(memory_->on_gpu() + first, agent, count).data(), {count}, [memory = memory_](void*) {},
      here(c10::CppTypeToScalarType<T>::value));
}

at::Tensor DqnReplicated::priority_sums(int agent) const { return tensor<int64_t>(0, agent, shards_); }
at::Tensor DqnReplicated::priority_range(int agent) const { return tensor<int64_t>(ranges_, agent, 2); }
at::Tensor DqnReplicated::td_errors(int agent) const { return tensor<float>(errors_, agent, batch_); }

std::span<int64_t> DqnReplicated::host_priority_sums(int agent) {
  return row_of<int64_t>(memory_->on_host(), agent, shards_);
}
std::span<int64_t> DqnReplicated::host_priority_range(int agent) {
  return row_of<int64_t>(memory_->on_host() + ranges_, agent, 2);
}
std::span<float> DqnReplicated::host_td_errors(int agent) {
  return row_of<float>(memory_->on_host() + errors_, agent, batch_);
}

void DqnReplicated::queue_up(size_t first, size_t last) {
  device().queue_from_host(memory_->on_gpu() + first, memory_->on_host() + first, last - first);
}

void DqnReplicated::queue_fetch_ranges() {
  device().queue_to_host(memory_->on_host() + ranges_, memory_->on_gpu() + ranges_, errors_ - ranges_);
}

void DqnReplicated::need_ranges(int64_t step) {
  if (step_of_ranges_ == step) return;
  queue_fetch_ranges();
  device().wait();
  step_of_ranges_ = step;
}

}  // namespace tandem
