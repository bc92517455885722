#include "engine/phase_outputs.h"

#include <ATen/ATen.h>

#include "nn/here.h"

namespace tandem {
namespace {

constexpr size_t kDecisionBytes = 56;  // the word after it is the hold
static_assert(sizeof(UpdateDecision) <= kDecisionBytes);
constexpr size_t kHeadBytes = kDecisionBytes + sizeof(int64_t);

}  // namespace

PhaseOutputs::PhaseOutputs(int shards, int counts, int floats, int integers)
    : shards_(shards),
      counts_(counts),
      floats_(floats),
      integers_(integers),
      memory_(kHeadBytes + (shards_ + shards_ * counts_ + integers_) * sizeof(int64_t) + floats_ * sizeof(float)) {}

void PhaseOutputs::queue_clear() {
  device().fill_ones(memory_.on_gpu() + kDecisionBytes, sizeof(int64_t) + bad_on_gpu().size_bytes());
  const size_t done = kHeadBytes + shards_ * sizeof(int64_t);
  device().zero(memory_.on_gpu() + done, memory_.size() - done);
}

void PhaseOutputs::queue_fetch(const float* floats) {
  if (floats)
    device().copy(memory_.on_gpu() + memory_.size() - floats_ * sizeof(float), floats, floats_ * sizeof(float));
  memory_.queue_down();
}

std::span<int64_t> PhaseOutputs::bad_on_gpu() const {
  return {reinterpret_cast<int64_t*>(memory_.on_gpu() + kHeadBytes), shards_};
}

std::span<int64_t> PhaseOutputs::hold_on_gpu() const {
  return {reinterpret_cast<int64_t*>(memory_.on_gpu() + kDecisionBytes), 1};
}

void PhaseOutputs::queue_clear_hold() { device().fill_ones(hold_on_gpu().data(), sizeof(int64_t)); }

int64_t* PhaseOutputs::totals_on_gpu() const { return bad_on_gpu().data() + shards_ + shards_ * counts_; }

at::Tensor PhaseOutputs::counts_on_gpu(int index) const {
  int64_t* first = bad_on_gpu().data() + shards_ + static_cast<size_t>(index) * counts_;
  return at::from_blob(first, {static_cast<int64_t>(counts_)}, here(at::kLong));
}

std::span<int64_t> PhaseOutputs::words() {
  return {reinterpret_cast<int64_t*>(memory_.on_host() + kHeadBytes), shards_ + shards_ * counts_ + integers_};
}

std::span<const float> PhaseOutputs::floats() {
  return {reinterpret_cast<float*>(memory_.on_host() + memory_.size() - floats_ * sizeof(float)), floats_};
}

}  // namespace tandem
