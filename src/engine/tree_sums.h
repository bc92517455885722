// engine/tree_sums.h -- adds up what a pass over several shards leaves behind, along the tree.
//
// Layers hand over each parameter's gradient of every shard of the pass (LeafSums, nn/layer_context.h). It is summed at
// once, over each whole subtree that the pass holds, into that subtree's vector: so the leaves of one layer live at a
// time. Two things make them wait: a parameter that is used twice, whose leaves are the sums over its uses; and several
// micro-batches, since each shard's own sum comes first. Bits are those of passes over one shard.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "engine/job_state.h"
#include "nn/layer_context.h"

namespace tandem {

// A whole subtree among the shards of a pass.
struct PassPart {
  int node = 0;             // of the tree
  int first = 0, last = 0;  // shards of the pass
  std::vector<int> merges;  // SumTree::merges()
  std::span<float> vector;  // laid out as a contribution, zero at first
};

class TreeSums : public LeafSums {
 public:
  explicit TreeSums(JobState& state) : state_(state) {}
  // `recipe_floats`: the last ones of each vector. `wait`: several micro-batches come, or several calls of backward().
  void begin(int shards, std::span<const PassPart> parts, int64_t recipe_floats, bool wait);
  void expect(const at::Tensor& parameter) override;
  void add(const at::Tensor& parameter, const at::Tensor& leaves) override;
  at::Tensor so_far(const at::Tensor& parameter) override;
  void add_statistic(const at::Tensor& buffer, const at::Tensor& leaves) override;
  // The recipe's sums from `index` on: [shards] or [shards, sums].
  void add_floats(int index, const at::Tensor& leaves);
  void finish();  // after the last micro-batch: everything is in the vectors
  // Called with the offset of each gradient that is in the vectors, unless it waits for micro-batches. Null: nobody is.
  void on_final(std::function<void(int64_t)> final) { final_ = std::move(final); }

 private:
  struct Uses {
    int expected = 0;
    at::Tensor leaves;  // of those that came
    int64_t offset = 0;
  };
  void put(int64_t offset, const at::Tensor& leaves);
  void sum(int64_t offset, const float* leaves, int64_t stride, int64_t n);
  at::Tensor checked(const at::Tensor& leaves, int64_t count) const;
  void settle();  // what still waits for further uses

  JobState& state_;
  int shards_ = 1;
  std::span<const PassPart> parts_;
  int64_t recipe_floats_ = 0, floats_ = 0;
  bool wait_ = false;
  std::map<int64_t, Uses> uses_;  // by offset
  at::Tensor waiting_;            // [shards, floats]: the shards' own sums
  at::Tensor tails_;              // [shards, recipe_floats]
  std::function<void(int64_t)> final_;
};

}  // namespace tandem
