// rl/tree_grower.h -- randomised regression trees: at each node some features are tried, each at one random cut, and
// the cut that explains most of the targets is taken (extra trees; Geurts, Ernst, Wehenkel 2006).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/philox.h"

namespace tandem {

struct TreeNode {
  int32_t feature = -1;  // -1: a leaf
  float cut = 0;         // below it: left
  int32_t left = 0, right = 0;
  int32_t leaf = -1;  // its number, from TreeTask::first_leaf on
};

struct TreeTask {
  const float* states = nullptr;  // [any, state_size]
  int64_t state_size = 0;
  const double* targets = nullptr;
  int64_t least_rows = 1, tried_features = 1;  // of a leaf; at a node
  RandomKey key;
  int32_t first_leaf = 0;
};

struct Tree {
  std::vector<TreeNode> nodes;
  std::vector<std::vector<int64_t>> rows;  // of each leaf, in the order they were given
  int32_t leaf_of(const float* state) const;
};

Tree grow_tree(const TreeTask& task, std::vector<int64_t> rows);

}  // namespace tandem
