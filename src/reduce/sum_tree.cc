#include "reduce/sum_tree.h"

#include <algorithm>
#include <cassert>

namespace tandem {
namespace {

// Prime factors if all are 2, 3 or 5, else empty.
std::vector<int> small_factors(int n) {
  std::vector<int> factors;
  for (int p : {2, 3, 5})
    for (; n % p == 0; n /= p) factors.push_back(p);
  return n == 1 ? factors : std::vector<int>{};
}

// Whole subtrees in [first, last) of the regular tree over [0, size).
int count_cover(int first, int last, int size, std::span<const int> arities) {
  if (first <= 0 && last >= size) return 1;
  const int child_size = size / arities[0];
  int count = 0;
  for (int child = 0; child < arities[0]; ++child) {
    const int lo = std::max(first - child * child_size, 0), hi = std::min(last - child * child_size, child_size);
    if (lo < hi) count += count_cover(lo, hi, child_size, arities.subspan(1));
  }
  return count;
}

}  // namespace

std::vector<int> SumTree::arities(int shards) {
  std::vector<int> best, order = small_factors(shards);
  long best_cost = -1;
  if (order.empty()) return best;
  std::sort(order.begin(), order.end());
  do {  // few factors, few permutations: 24 has four, 4096 one
    long cost = 0;
    for (int workers : {1, 2, 3, 4, 5, 6, 8}) {
      if (shards % workers != 0) continue;
      const int share = shards / workers;
      int most = 0;
      for (int w = 0; w < workers; ++w) most = std::max(most, count_cover(w * share, (w + 1) * share, shards, order));
      cost += 100L * most * most;  // the largest count is what everybody waits for
    }
    if (best_cost < 0 || cost < best_cost) best = order, best_cost = cost;
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

SumTree::SumTree(int shards) : leaves_(shards, -1) {
  assert(shards > 0);
  const std::vector<int> levels = arities(shards);
  grow(0, shards, levels, -1, 0);
}

int SumTree::grow(int first, int last, std::span<const int> arities, int parent, int child_index) {
  const int id = static_cast<int>(nodes_.size());
  nodes_.push_back({.first = first, .last = last, .parent = parent, .child_index = child_index, .children = {}});
  const int size = last - first;
  if (size == 1) {
    leaves_[first] = id;
    return id;
  }
  const int arity = arities.empty() ? 2 : arities[0];
  const auto below = arities.empty() ? arities : arities.subspan(1);
  for (int child = 0, at = first; child < arity; ++child) {
    const int end = first + static_cast<int>((static_cast<long>(size) * (child + 1) + arity - 1) / arity);
    const int grown = grow(at, end, below, id, child);
    nodes_[id].children.push_back(grown);
    at = end;
  }
  return id;
}

std::vector<int> SumTree::merges(int top) const {
  std::vector<int> joined;
  for (int shard = node(top).first; shard < node(top).last; ++shard) {
    joined.push_back(0);
    for (int id = leaf(shard); id != top; id = node(id).parent) {
      if (node(id).child_index > 0) ++joined.back();
      if (node(id).child_index + 1 < static_cast<int>(node(node(id).parent).children.size())) break;
    }
  }
  return joined;
}

std::vector<int> SumTree::cover(int first, int last) const {
  std::vector<int> found;
  if (first < last) cover(root(), first, last, found);
  return found;
}

void SumTree::cover(int id, int first, int last, std::vector<int>& found) const {
  const Node& n = nodes_[id];
  if (n.last <= first || n.first >= last) return;
  if (n.first >= first && n.last <= last) {
    found.push_back(id);
    return;
  }
  for (int child : n.children) cover(child, first, last, found);
}

}  // namespace tandem
