// reduce/exact_sum.h -- the exact sum: floats added along one fixed tree over the shards (SumTree).
//
// Float addition depends on its order. Here the tree alone sets the order, so vectors may arrive in any order, from any
// number of workers, and the bits are the same.
// A node's value is ((c0 + c1) + c2)... over its children. A child that arrives in turn is added at once; one that
// comes early waits in a buffer. Visiting shards in their order needs one buffer per level, the least for vectors that
// come one after the other, and one pass per shard; where the shards' vectors stay, it is one pass per node.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "reduce/sum_tree.h"

namespace tandem {

template <class T>
class ExactSum {
 public:
  // Sums the shards [first, last) of the tree: the whole tree, or what one worker holds. Vectors of float may lie on a
  // GPU: then so do the sums.
  ExactSum(const SumTree& tree, int64_t length, int first, int last, Device& device = cpu_device());
  ExactSum(const SumTree& tree, int64_t length) : ExactSum(tree, length, 0, tree.shards()) {}
  // The same in host memory, but partial k is added up in destinations[k], the caller's memory, where others may read
  // it.
  ExactSum(const SumTree& tree, int64_t length, int first, int last, std::span<T* const> destinations);

  void begin();  // forgets everything; buffers are kept for reuse

  // One shard's vector, or the sum of a whole subtree made elsewhere. It is copied or added before the call returns,
  // except that a vector for the root itself is borrowed (not if it has a destination), and so is
  // one that `stays` until begin() where it is a partial by itself. Throws std::logic_error if a shard comes twice.
  void add(int shard, std::span<const T> values, bool stays = false) { deliver(tree_.leaf(shard), values, stays); }
  void add_partial(int node, std::span<const T> values, bool stays = false) { deliver(node, values, stays); }

  struct Partial {
    int node;
    std::span<const T> values;
  };
  // The sums of the fewest whole subtrees of [first, last), left to right; throws std::logic_error if a shard is
  // missing. Valid until begin().
  std::vector<Partial> partials() const;
  // The sum over all shards of the tree, under the same conditions.
  std::span<const T> total() const;
  // Memory for a vector that nothing here uses before the next add(), and that is none of `but`; null if there is none.
  T* spare(std::span<const Partial> but) const;

 private:
  struct Free {
    Device* device = nullptr;
    bool borrowed = false;  // the caller's memory: not ours to free, nor to use for another node
    void operator()(T* p) const;
  };
  using Buffer = std::unique_ptr<T[], Free>;
  struct Pending {
    bool top = false;          // its sum stays here: nothing above it lies wholly in [first, last)
    bool given = false;        // complete
    int next = 0;              // how many children are in `sum`
    T* destination = nullptr;  // where a copy of this node goes: it is the first of a top node that has a destination
    Buffer sum;
    std::span<const T> lent;     // instead of `sum`, in a top node: the caller's memory
    std::vector<Buffer> early;   // children that came before their turn
    std::vector<const T*> kept;  // children that stay where they are: they are added up all at once, in one pass
    int present = 0;             // children in `early` or `kept`, once one is kept
  };

  void deliver(int node, std::span<const T> values, bool stays);
  // These give the sum of the node's parent once it is complete, else no buffer.
  Buffer add_at_once(int node, std::span<const T> values, Buffer owned, bool keep);
  Buffer add_in_turn(int node, std::span<const T> values, Buffer owned);
  [[noreturn]] void came_twice(int node) const;
  Buffer copy_of(std::span<const T> values, int node);
  void give_back(Buffer buffer);
  Buffer take_buffer();

  const SumTree& tree_;
  int64_t length_;
  Device* device_;
  std::vector<int> tops_;
  std::vector<Pending> pending_;
  std::vector<Buffer> free_;
};

extern template class ExactSum<float>;
extern template class ExactSum<double>;

}  // namespace tandem
