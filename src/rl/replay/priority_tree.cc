#include "rl/replay/priority_tree.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace tandem {
namespace {

constexpr int kFanBits = PriorityTree::kFanBits;
constexpr int64_t kFan = int64_t{1} << kFanBits;

int64_t above(int64_t count) { return (count + kFan - 1) >> kFanBits; }

}  // namespace

int64_t PriorityTree::words(int64_t leaves) {
  int64_t words = leaves, count = leaves;
  do {
    count = above(count);
    words += count;
  } while (count > 1);
  return words;
}

PriorityTree::PriorityTree(std::span<int64_t> memory, int64_t leaves) : memory_(memory), leaves_(leaves) {
  if (leaves < 1 || static_cast<int64_t>(memory.size()) < words(leaves))
    throw std::logic_error("a priority tree without room");
  levels_ = places(leaves, first_);
}

int PriorityTree::places(int64_t leaves, int64_t (&first)[kMostLevels]) {
  int64_t at = 0, count = leaves;
  int levels = 0;
  first[levels++] = at;
  do {
    at += count;
    count = above(count);
    first[levels++] = at;
  } while (count > 1);
  return levels;
}

void PriorityTree::set(int64_t leaf, int64_t priority) {
  const int64_t difference = priority - memory_[leaf];
  for (int level = 0; level < levels_; ++level, leaf >>= kFanBits) memory_[first_[level] + leaf] += difference;
}

// Reads all sums of a node: no branch, which would be mispredicted at every level.
int64_t PriorityTree::descend(int level, int64_t index, int64_t& at) const {
  index <<= kFanBits;
  const int64_t* const sums = memory_.data() + first_[level] + index;
  const int64_t count = std::min(kFan, first_[level + 1] - first_[level] - index);
  int64_t passed = 0, before = 0, sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += sums[i];
    const bool beyond = at >= sum;
    passed += beyond;
    before = beyond ? sum : before;
  }
  at -= before;
  return index + passed;
}

int64_t PriorityTree::find(int64_t at) const {
  int64_t index = 0;
  for (int level = levels_ - 2; level >= 0; --level) index = descend(level, index, at);
  return index;
}

void PriorityTree::find_all(std::span<int64_t> places) const {
  std::vector<int64_t> found(places.size(), 0);
  for (int level = levels_ - 2; level >= 0; --level)
    for (size_t i = 0; i < places.size(); ++i) {
      found[i] = descend(level, found[i], places[i]);
      if (level == 0) continue;
      const int64_t* const next = memory_.data() + first_[level - 1] + (found[i] << kFanBits);
      __builtin_prefetch(next);
      __builtin_prefetch(next + kFan / 2);
    }
  std::ranges::copy(found, places.begin());
}

}  // namespace tandem
