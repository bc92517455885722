// reduce/exact_sum.h -- adds shards' vectors along the SumTree, in any order of arrival, to the same bits.
//
// A node's value is ((c0 + c1) + c2)... over its children. A child that arrives in turn is added at once; one that
// comes early waits in a buffer. Visiting shards in their order needs one buffer per level and one pass per shard.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "reduce/sum_tree.h"

namespace tandem {

template <class T>
class ExactSum {
 public:
  // Sums the shards [first, last) of the tree: the whole tree, or what one worker holds.
  ExactSum(const SumTree& tree, int64_t length, int first, int last);
  ExactSum(const SumTree& tree, int64_t length) : ExactSum(tree, length, 0, tree.shards()) {}

  void begin();  // forgets everything; buffers are kept for reuse

  // One shard's vector, or the sum of a whole subtree made elsewhere. It is copied or added before the call returns,
  // except that a vector for the root itself is borrowed. Throws std::logic_error if a shard comes twice.
  void add(int shard, std::span<const T> values) { deliver(tree_.leaf(shard), values); }
  void add_partial(int node, std::span<const T> values) { deliver(node, values); }

  struct Partial {
    int node;
    std::span<const T> values;
  };
  // The sums of the fewest whole subtrees of [first, last), left to right; throws std::logic_error if a shard is
  // missing. Valid until begin().
  std::vector<Partial> partials() const;
  // The sum over all shards of the tree, under the same conditions.
  std::span<const T> total() const;

 private:
  struct Free {
    void operator()(T* p) const;
  };
  using Buffer = std::unique_ptr<T[], Free>;
  struct Pending {
    bool top = false;    // its sum stays here: nothing above it lies wholly in [first, last)
    bool given = false;  // complete
    int next = 0;        // how many children are in `sum`
    Buffer sum;
    std::vector<Buffer> early;  // children that came before their turn
  };

  void deliver(int node, std::span<const T> values);
  Buffer copy_of(std::span<const T> values);
  Buffer take_buffer();

  const SumTree& tree_;
  int64_t length_;
  std::vector<int> tops_;
  std::vector<Pending> pending_;
  std::vector<Buffer> free_;
  std::span<const T> borrowed_;
};

extern template class ExactSum<float>;
extern template class ExactSum<double>;

}  // namespace tandem
