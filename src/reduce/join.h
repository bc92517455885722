// reduce/join.h -- adds the partial sums of all members, in tree order, one stretch of the vector at a time.
//
// ExactSum takes vectors as they come; here all partials are there, so each stretch is read once, added while it stays
// in the cache, and written once. Same tree, same bits, for any division of the vector into stretches.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "reduce/shard_range.h"
#include "reduce/sum_tree.h"

namespace tandem {

template <class T>
class Join {
 public:
  // The partials are those of SumTree::cover for each member's range, in order. Throws std::logic_error unless the
  // ranges ascend and cover the tree.
  Join(const SumTree& tree, std::span<const ShardRange> ranges);

  int partials() const { return first_.back(); }
  int partials(int member) const { return first_[member + 1] - first_[member]; }
  int first_partial(int member) const { return first_[member]; }

  // out[i] = the total of partials[k][i] over all k, for i < n. `out` overlaps none of them.
  void add(T* out, const T* const* partials, int64_t n);

  // The same as a list of sums, for whoever adds elsewhere. A value is left-associative, so a node whose first child is
  // itself a sum is one longer list of operands; only other children that are sums need a buffer of their own.
  // Operands: a partial k >= 0, or the buffer -1 - k.
  struct Sum {
    int buffer;  // where it goes; the last sum goes to `out`, in a large vector by way of its buffer
    std::vector<int> operands;
  };
  std::span<const Sum> sums() const { return sums_; }
  int buffers() const { return buffers_; }
  // And as a stack: for each partial, in order, how many of the sums that wait are joined after it, as left + right
  // (SumTree::merges()).
  std::span<const int> merges() const { return merges_; }

 private:
  void operands_of(const SumTree& tree, int node, const std::vector<int>& partial_at, std::vector<int>& operands);

  void merges_of(const SumTree& tree, int node, const std::vector<int>& partial_at);

  std::vector<int> first_;  // by member, and the count at the end
  std::vector<Sum> sums_;
  std::vector<int> merges_;
  int buffers_ = 0;
  std::vector<T> scratch_;
};

extern template class Join<float>;
extern template class Join<double>;

// The stretch [first, second) of a vector of n floats that one of `members` reduces. Whole cache lines, so that no two
// write to the same one.
std::pair<int64_t, int64_t> slice_of(int64_t n, int members, int member);

}  // namespace tandem
