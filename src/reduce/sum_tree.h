// reduce/sum_tree.h -- the one fixed tree along which shards are added.
//
// Float addition depends on order: two workers and three would round differently and a resumed run would drift. So the
// order is a tree over shard ids that depends on the number of shards alone. A worker may add up only whole subtrees
// that it holds; any grouping of shards on workers then gives the same bits.
#pragma once

#include <span>
#include <vector>

namespace tandem {

class SumTree {
 public:
  struct Node {
    int first = 0, last = 0;    // the shards under it: [first, last)
    int parent = -1;            // -1 for the root
    int child_index = 0;        // among its parent's children
    std::vector<int> children;  // left to right; empty for a leaf
  };

  explicit SumTree(int shards);

  int shards() const { return nodes_[0].last; }
  int root() const { return 0; }
  int leaf(int shard) const { return leaves_.at(shard); }
  const Node& node(int id) const { return nodes_.at(id); }
  int node_count() const { return static_cast<int>(nodes_.size()); }

  // The fewest whole subtrees that make up the shards [first, last), left to right: what a worker sends.
  std::vector<int> cover(int first, int last) const;

  // For the shards under `node`, taken in order: how many of the sums that wait are joined after each of them, the last
  // one first, as left + right. One is left in the end.
  std::vector<int> merges(int node) const;

  // Arity of each level, root first: 24 shards -> 2 3 2 2. Chosen so that 1, 2, 3, 4, 6 or 8 equal workers hold few
  // subtrees each; a count with a prime factor above 5 falls back to halves.
  static std::vector<int> arities(int shards);

 private:
  int grow(int first, int last, std::span<const int> arities, int parent, int child_index);
  void cover(int id, int first, int last, std::vector<int>& found) const;

  std::vector<Node> nodes_;
  std::vector<int> leaves_;
};

}  // namespace tandem
