#include "engine/phase_outputs.h"

#include <ATen/ATen.h>

#include "nn/here.h"

namespace tandem {
namespace {

constexpr size_t kDecisionBytes = 64;
static_assert(sizeof(UpdateDecision) <= kDecisionBytes);

}  // namespace

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

}  // namespace tandem
