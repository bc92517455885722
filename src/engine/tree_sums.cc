#include "engine/tree_sums.h"

#include <ATen/ATen.h>

#include <stdexcept>

#include "kernels/tree_kernels.h"
#include "nn/here.h"
#include "nn/kernel_choice.h"

namespace tandem {

void TreeSums::begin(int shards, std::span<const PassPart> parts, int64_t recipe_floats, bool wait) {
  shards_ = shards;
  parts_ = parts;
  recipe_floats_ = recipe_floats;
  floats_ = parts.empty() ? 0 : static_cast<int64_t>(parts.front().vector.size());
  wait_ = wait;
  uses_.clear();
  waiting_.reset();
  tails_.reset();
}

void TreeSums::expect(const at::Tensor& parameter) {
  const int64_t offset = state_.offset_of(parameter);
  if (offset >= 0) ++uses_[offset].expected;
}

void TreeSums::add(const at::Tensor& parameter, const at::Tensor& leaves) {
  const int64_t offset = state_.offset_of(parameter);
  if (offset < 0) return;  // of a model that is not trained here
  const at::Tensor given = checked(leaves, parameter.numel());
  Uses& uses = uses_[offset];
  if (uses.expected <= 1 && !uses.leaves.defined()) {
    uses.expected = 0;
    return put(offset, given);
  }
  if (!uses.leaves.defined())
    uses.leaves = given;
  else if (uses.leaves.const_data_ptr() != given.const_data_ptr())
    uses.leaves.add_(given);
  if (--uses.expected > 0) return;
  put(offset, uses.leaves);
  uses.leaves.reset();
}

at::Tensor TreeSums::so_far(const at::Tensor& parameter) {
  const auto found = uses_.find(state_.offset_of(parameter));
  return found == uses_.end() ? at::Tensor() : found->second.leaves;
}

void TreeSums::add_statistic(const at::Tensor& buffer, const at::Tensor& leaves) {
  const int64_t offset = state_.offset_of(buffer);
  if (offset >= 0) put(offset, checked(leaves, buffer.numel()));
}

void TreeSums::add_floats(int index, const at::Tensor& leaves) {
  if (leaves.numel() % shards_ != 0 || index + leaves.numel() / shards_ > recipe_floats_)
    throw std::logic_error("add() of a group of shards takes a value, or a row of values, for each of them");
  if (!tails_.defined()) tails_ = at::zeros({shards_, recipe_floats_}, here());
  tails_.narrow(1, index, leaves.numel() / shards_).add_(leaves.reshape({shards_, -1}));
}

void TreeSums::finish() {
  settle();
  if (waiting_.defined()) sum(0, waiting_.const_data_ptr<float>(), waiting_.stride(0), waiting_.size(1));
  if (tails_.defined()) sum(floats_ - recipe_floats_, tails_.const_data_ptr<float>(), recipe_floats_, recipe_floats_);
  waiting_.reset();
  tails_.reset();
  parts_ = {};
}

// A use whose output led to no loss has no gradient: its add() never came.
void TreeSums::settle() {
  for (auto& [offset, uses] : uses_)
    if (uses.leaves.defined()) put(offset, uses.leaves);
  uses_.clear();
}

void TreeSums::put(int64_t offset, const at::Tensor& leaves) {
  const int64_t n = leaves.size(1);
  if (!wait_) {
    sum(offset, leaves.const_data_ptr<float>(), n, n);
    if (final_) final_(offset);
    return;
  }
  if (!waiting_.defined()) waiting_ = at::zeros({shards_, floats_ - recipe_floats_}, here());
  waiting_.narrow(1, offset, n).add_(leaves);
}

void TreeSums::sum(int64_t offset, const float* leaves, int64_t stride, int64_t n) {
  static const at::Tensor where = at::empty({0}, here());
  const TreeKernels& kernels = kernels_for<TreeKernels>(where);
  for (const PassPart& part : parts_)
    kernels.tree_sum(leaves + part.first * stride, stride, part.last - part.first, part.merges.data(),
                     part.vector.data() + offset, n, /*add=*/true, stream_for(where));  // to what autograd found
}

at::Tensor TreeSums::checked(const at::Tensor& leaves, int64_t count) const {
  if (leaves.scalar_type() != at::kFloat || leaves.numel() != shards_ * count)
    throw std::logic_error("a layer must hand over a float for each element of its parameter and each shard");
  return leaves.reshape({shards_, count}).contiguous();
}

}  // namespace tandem
