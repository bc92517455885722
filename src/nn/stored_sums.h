// nn/stored_sums.h -- for tests: keeps the leaves that layers hand over.
#pragma once

#include <ATen/ATen.h>

#include <map>

#include "nn/layer_context.h"

namespace tandem {

// Several uses of a parameter add up, in the order in which they come.
class StoredSums : public LeafSums {
 public:
  void expect(const at::Tensor& parameter) override { ++expected_[key(parameter)]; }
  void add(const at::Tensor& parameter, const at::Tensor& leaves) override {
    --expected_[key(parameter)];
    add_statistic(parameter, leaves);
  }
  void add_statistic(const at::Tensor& buffer, const at::Tensor& leaves) override {
    at::Tensor& stored = leaves_[key(buffer)];
    if (stored.defined() && stored.const_data_ptr() == leaves.const_data_ptr()) return;
    stored = stored.defined() ? stored + leaves : leaves.clone();
  }
  at::Tensor so_far(const at::Tensor& parameter) override { return leaves(parameter); }
  // [shards, elements]; undefined: none came.
  at::Tensor leaves(const at::Tensor& of) const {
    const auto found = leaves_.find(key(of));
    return found == leaves_.end() ? at::Tensor() : found->second;
  }
  bool all_came() const {
    for (const auto& [parameter, left] : expected_)
      if (left != 0) return false;
    return true;
  }

 private:
  static const void* key(const at::Tensor& t) { return t.unsafeGetTensorImpl(); }
  std::map<const void*, int> expected_;
  std::map<const void*, at::Tensor> leaves_;
};

}  // namespace tandem
