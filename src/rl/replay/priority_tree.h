// rl/replay/priority_tree.h -- sums over integer priorities: change one, find the one at a place of the whole mass.
//
// Levels of sums over sixteen, in memory of somebody else (a shard's state). Adding a difference of integers is exact,
// so the sums depend on the priorities alone, never on their history.
#pragma once

#include <cstdint>
#include <span>

namespace tandem {

class PriorityTree {
 public:
  static constexpr int kFanBits = 4;     // a sum is one of sixteen
  static int64_t words(int64_t leaves);  // of memory; all zero is a valid, empty tree
  static constexpr int kMostLevels = 10;
  // Where each level begins in it, the leaves first; returns how many there are.
  static int places(int64_t leaves, int64_t (&first)[kMostLevels]);
  PriorityTree(std::span<int64_t> memory, int64_t leaves);

  int64_t leaves() const { return leaves_; }
  int64_t total() const { return memory_[first_[levels_ - 1]]; }
  int64_t get(int64_t leaf) const { return memory_[leaf]; }
  void set(int64_t leaf, int64_t priority);
  // The leaf whose part of the mass [0, total()) holds `at`, with leaves laid end to end in their order.
  int64_t find(int64_t at) const;
  // The same for several places: each becomes its leaf. Level by level for all, so that none waits for another's
  // memory.
  void find_all(std::span<int64_t> places) const;

 private:
  int64_t descend(int level, int64_t index, int64_t& at) const;  // from a sum of the level above
  std::span<int64_t> memory_;
  int64_t leaves_;
  int levels_ = 0;
  int64_t first_[kMostLevels];  // where a level begins; level 0 are the leaves, the last has one sum
};

}  // namespace tandem
