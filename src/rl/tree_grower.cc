#include "rl/tree_grower.h"

#include <algorithm>

namespace tandem {
namespace {

struct Cut {
  int64_t feature = -1;
  float at = 0;
  double gain = 0;
};

class Grower {
 public:
  explicit Grower(const TreeTask& task) : task_(task) {}

  Tree grow(std::vector<int64_t> rows) {
    Tree tree;
    std::vector<Waiting> waiting;
    tree.nodes.emplace_back();
    waiting.push_back({0, std::move(rows)});
    while (!waiting.empty()) {
      Waiting now = std::move(waiting.back());
      waiting.pop_back();
      const Cut cut = best_cut(now.rows);
      if (cut.feature < 0) {
        tree.nodes[now.node].leaf = task_.first_leaf + static_cast<int32_t>(tree.rows.size());
        tree.rows.push_back(std::move(now.rows));
        continue;
      }
      std::vector<int64_t> left, right;
      for (const int64_t row : now.rows) (below(row, cut) ? left : right).push_back(row);
      const size_t next = tree.nodes.size();
      tree.nodes[now.node] = {static_cast<int32_t>(cut.feature), cut.at, static_cast<int32_t>(next),
                              static_cast<int32_t>(next + 1), -1};
      tree.nodes.resize(next + 2);
      waiting.push_back({next + 1, std::move(right)});
      waiting.push_back({next, std::move(left)});
    }
    return tree;
  }

 private:
  struct Waiting {
    size_t node;
    std::vector<int64_t> rows;
  };

  float number(int64_t row, int64_t feature) const { return task_.states[row * task_.state_size + feature]; }
  bool below(int64_t row, const Cut& cut) const { return number(row, cut.feature) < cut.at; }

  // None where too few rows are left, or nothing tells them apart.
  Cut best_cut(const std::vector<int64_t>& rows) {
    Cut best;
    if (static_cast<int64_t>(rows.size()) < 2 * task_.least_rows) return best;
    double sum = 0;
    for (const int64_t row : rows) sum += task_.targets[row];
    const double whole = sum * sum / static_cast<double>(rows.size());
    const bool all = task_.state_size <= task_.tried_features;
    for (int64_t i = 0; i < std::min(task_.state_size, task_.tried_features); ++i) {
      Cut cut;
      cut.feature = all ? i : random_below(task_.key, draws_++, static_cast<uint32_t>(task_.state_size));
      if (!place(rows, cut)) continue;
      cut.gain = explained(rows, cut) - whole;
      if (cut.gain > best.gain) best = cut;
    }
    return best;
  }

  // A cut between the smallest and the largest; false where they are equal.
  bool place(const std::vector<int64_t>& rows, Cut& cut) {
    float low = number(rows.front(), cut.feature), high = low;
    for (const int64_t row : rows) {
      low = std::min(low, number(row, cut.feature));
      high = std::max(high, number(row, cut.feature));
    }
    const float share = random_uniform(task_.key, draws_++);
    cut.at = low + (high - low) * share;
    if (cut.at <= low) cut.at = high;
    return low < high;
  }

  // Sum of squares that the two means explain; below that of one mean where a side is too small.
  double explained(const std::vector<int64_t>& rows, const Cut& cut) const {
    double sums[2] = {0, 0};
    int64_t counts[2] = {0, 0};
    for (const int64_t row : rows) {
      const int side = below(row, cut) ? 0 : 1;
      sums[side] += task_.targets[row];
      ++counts[side];
    }
    if (std::min(counts[0], counts[1]) < task_.least_rows) return -1;
    return sums[0] * sums[0] / static_cast<double>(counts[0]) + sums[1] * sums[1] / static_cast<double>(counts[1]);
  }

  const TreeTask& task_;
  uint64_t draws_ = 0;
};

}  // namespace

int32_t Tree::leaf_of(const float* state) const {
  size_t at = 0;
  while (nodes[at].feature >= 0)
    at = static_cast<size_t>(state[nodes[at].feature] < nodes[at].cut ? nodes[at].left : nodes[at].right);
  return nodes[at].leaf;
}

Tree grow_tree(const TreeTask& task, std::vector<int64_t> rows) { return Grower(task).grow(std::move(rows)); }

}  // namespace tandem
