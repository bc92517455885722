// nn/test_pass.h -- for tests of layers: a pass over several shards, and what came of it.
#pragma once

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/random_fill.h"
#include "nn/layer_context.h"
#include "nn/stored_sums.h"

namespace tandem {

inline at::Tensor test_numbers(at::IntArrayRef sizes, uint32_t site, float deviation = 1) {
  at::Tensor values = at::empty(sizes);
  fill_normal(values.data_ptr<float>(), values.numel(), RandomKey{5, 0, 0, site}, 0, 0, deviation);
  return values;
}

// While it lives, the layer runs `shards` shards in one pass and gives its leaves to `sums`.
struct TestPass {
  TestPass(const ShardAware& of, int shards) : layer(of) {
    layer.pass().shards = shards;
    layer.pass().sums = &sums;
  }
  ~TestPass() {
    layer.pass().shards = 1;
    layer.pass().sums = nullptr;
  }
  const ShardAware& layer;
  StoredSums sums;
};

// While it lives, autocast to bf16 is on for the CPU.
struct TestAutocast {
  TestAutocast() {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  ~TestAutocast() { at::autocast::set_autocast_enabled(at::kCPU, false); }
};

// The rows of shards [first, first + count) of `shards` in all.
inline at::Tensor shards_of(const at::Tensor& rows, int shards, int first, int count) {
  const int64_t each = rows.size(0) / shards;
  return rows.narrow(0, first * each, count * each);
}

// What a pass gave: outputs and gradients of inputs, by rows; leaves, by shards.
struct PassResults {
  std::vector<at::Tensor> rows, leaves;
  static PassResults joined(const std::vector<PassResults>& parts) {
    PassResults all = parts.front();
    for (size_t p = 1; p < parts.size(); ++p) {
      for (size_t i = 0; i < all.rows.size(); ++i) all.rows[i] = at::cat({all.rows[i], parts[p].rows[i]});
      for (size_t i = 0; i < all.leaves.size(); ++i) all.leaves[i] = at::cat({all.leaves[i], parts[p].leaves[i]});
    }
    return all;
  }
};

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return x.nbytes() == y.nbytes() && std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}
inline bool same_bits(const PassResults& a, const PassResults& b) {
  if (a.rows.size() != b.rows.size() || a.leaves.size() != b.leaves.size()) return false;
  for (size_t i = 0; i < a.rows.size(); ++i)
    if (!same_bits(a.rows[i], b.rows[i])) return false;
  for (size_t i = 0; i < a.leaves.size(); ++i)
    if (!same_bits(a.leaves[i], b.leaves[i])) return false;
  return true;
}

// `run(first, count)` runs shards [first, first + count) in one pass. True if all in one, in pairs and one by one give
// the same bits.
template <typename Run>
bool same_in_any_pass(int shards, const Run& run) {
  const PassResults whole = run(0, shards);
  for (const int group : {1, 2}) {
    std::vector<PassResults> parts;
    for (int first = 0; first < shards; first += group) parts.push_back(run(first, std::min(group, shards - first)));
    if (!same_bits(whole, PassResults::joined(parts))) return false;
  }
  return true;
}

}  // namespace tandem
