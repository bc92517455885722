#include "fleet/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "reduce/sum_tree.h"

namespace tandem {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kSlack = 1 + 1e-9;  // two ways to write the same time

// What a plan is searched among: who, how fast, and how many partials each range has.
class Search {
 public:
  Search(int shards, const std::map<int, double>& speeds, const std::vector<ShardAssignment>& now)
      : shards_(shards), ranks_(speeds.begin(), speeds.end()), owner_(shards, -1) {
    for (const ShardAssignment& a : now)
      for (int shard = a.range.first; shard < std::min(a.range.last, shards); ++shard) owner_[shard] = a.rank;
    count_partials();
  }

  std::vector<ShardAssignment> best(const PlannerOptions& options) const {
    // The fastest plan whose ranges have at most `cap` partials, for every cap that can win. The cap only ever makes
    // the slowest worker slower, so what a smaller cap may cost is bounded by the best so far: few lengths to try.
    int cap = most_partials_;
    double limit = fastest(cap, balanced_seconds() * kSlack), best_cost = limit + combine(options, cap);
    for (int fewer = cap - 1; fewer >= 1; --fewer) {
      const double seconds = fastest(fewer, (best_cost - combine(options, fewer)) * kSlack);
      if (seconds == kNever || seconds + combine(options, fewer) > best_cost * kSlack) continue;
      cap = fewer, limit = seconds, best_cost = std::min(best_cost, seconds + combine(options, fewer));
    }
    return thriftiest(cap, limit * kSlack);
  }

 private:
  int ranks() const { return static_cast<int>(ranks_.size()); }
  int partials(int first, int last) const { return partials_[first * (shards_ + 1) + last]; }
  static double combine(const PlannerOptions& options, int most_partials) {
    return options.combine_seconds * (most_partials + 1) / 2;
  }

  void count_partials() {
    const SumTree tree(shards_);
    partials_.assign(static_cast<size_t>(shards_ + 1) * (shards_ + 1), 0);
    for (int first = shards_ - 1; first >= 0; --first)
      for (int last = first + 1; last <= shards_; ++last) {
        int& count = partials_[first * (shards_ + 1) + last];
        count = 1 + partials(end_of_largest(tree, first, last), last);
        most_partials_ = std::max(most_partials_, count);
      }
  }
  // Where the largest whole subtree ends that begins at `first` and reaches `last` at most.
  static int end_of_largest(const SumTree& tree, int first, int last) {
    int id = tree.leaf(first);
    for (int up = tree.node(id).parent; up >= 0; up = tree.node(up).parent) {
      if (tree.node(up).first != first || tree.node(up).last > last) break;
      id = up;
    }
    return tree.node(id).last;
  }

  // The slowest worker's time if partials did not matter: one shard after the other to whom it delays least.
  double balanced_seconds() const {
    std::vector<int> count(ranks_.size(), 1);
    for (int given = ranks(); given < shards_; ++given) {
      size_t next = 0;
      for (size_t r = 1; r < count.size(); ++r)
        if ((count[r] + 1) / ranks_[r].second < (count[next] + 1) / ranks_[next].second) next = r;
      ++count[next];
    }
    double slowest = 0;
    for (size_t r = 0; r < count.size(); ++r) slowest = std::max(slowest, count[r] / ranks_[r].second);
    return slowest;
  }

  int longest(int r, double limit) const {
    const double shards = limit * ranks_[r].second * kSlack;
    return shards >= shards_ ? shards_ : static_cast<int>(shards);
  }

  // The least time of the slowest worker, with at most `cap` partials each and no worker above `limit`.
  double fastest(int cap, double limit) const {
    std::vector<double> at(shards_ + 1, kNever), next;  // at[s]: the first r ranks hold [0, s)
    at[0] = 0;
    for (int r = 0; r < ranks(); ++r) {
      next.assign(shards_ + 1, kNever);
      for (int first = 0; first < shards_; ++first) {
        if (at[first] == kNever) continue;
        const int end = std::min(shards_, first + longest(r, limit));
        for (int last = first + 1; last <= end; ++last)
          if (partials(first, last) <= cap)
            next[last] = std::min(next[last], std::max(at[first], (last - first) / ranks_[r].second));
      }
      at.swap(next);
    }
    return at[shards_];
  }

  // Among the plans within `cap` and `limit` the one with the fewest partials in all, then the fewest moved shards.
  std::vector<ShardAssignment> thriftiest(int cap, double limit) const {
    using Cost = std::pair<int, int>;
    constexpr Cost kNone{std::numeric_limits<int>::max(), 0};
    const int width = shards_ + 1;
    std::vector<Cost> at(static_cast<size_t>(ranks() + 1) * width, kNone);
    std::vector<int> from(at.size(), 0);
    at[0] = {0, 0};
    for (int r = 0; r < ranks(); ++r)
      for (int first = 0; first < shards_; ++first) {
        if (at[r * width + first] == kNone) continue;
        Cost cost = at[r * width + first];
        const int end = std::min(shards_, first + longest(r, limit));
        for (int last = first + 1; last <= end; ++last) {
          cost.second += moved(last - 1, ranks_[r].first);
          if (partials(first, last) > cap) continue;
          const Cost with{cost.first + partials(first, last), cost.second};
          Cost& there = at[(r + 1) * width + last];
          if (with < there) there = with, from[(r + 1) * width + last] = first;
        }
      }
    std::vector<ShardAssignment> plan(ranks_.size());
    for (int r = ranks() - 1, last = shards_; r >= 0; --r) {
      const int first = from[(r + 1) * width + last];
      plan[r] = {.rank = ranks_[r].first, .range = {first, last}};
      last = first;
    }
    return plan;
  }
  int moved(int shard, int rank) const { return owner_[shard] >= 0 && owner_[shard] != rank ? 1 : 0; }

  int shards_;
  std::vector<std::pair<int, double>> ranks_;
  std::vector<int> owner_;     // by shard; -1: nobody has it
  std::vector<int> partials_;  // of [first, last)
  int most_partials_ = 1;
};

// The `shards` fastest ones; among equals the lower rank.
std::map<int, double> without_spares(int shards, const std::map<int, double>& speeds) {
  std::vector<std::pair<double, int>> order;
  for (const auto& [rank, speed] : speeds) order.emplace_back(-speed, rank);
  std::sort(order.begin(), order.end());
  order.resize(std::min<size_t>(order.size(), shards));
  std::map<int, double> kept;
  for (const auto& [speed, rank] : order) kept[rank] = -speed;
  return kept;
}

}  // namespace

std::vector<ShardAssignment> make_plan(int shards, const std::map<int, double>& speeds, const PlannerOptions& options,
                                       const std::vector<ShardAssignment>& now) {
  if (speeds.empty()) return {};
  const std::map<int, double> kept = without_spares(shards, speeds);
  return Search(shards, kept, now).best(options);
}

std::vector<ShardAssignment> make_plan(int shards, const std::map<int, double>& speeds, const PlannerOptions& options) {
  return make_plan(shards, speeds, options, {});
}

PlanCost cost_of(int shards, const std::vector<ShardAssignment>& plan, const std::map<int, double>& speeds,
                 const PlannerOptions& options) {
  const SumTree tree(shards);
  PlanCost cost;
  double summed = 0;
  for (const ShardAssignment& a : plan) {
    cost.step_seconds = std::max(cost.step_seconds, a.range.size() / speeds.at(a.rank));
    cost.most_partials = std::max(cost.most_partials, static_cast<int>(tree.cover(a.range.first, a.range.last).size()));
    summed += speeds.at(a.rank);
  }
  cost.step_seconds += options.combine_seconds * (cost.most_partials + 1) / 2;
  cost.efficiency = (shards / summed + options.combine_seconds) / cost.step_seconds;
  return cost;
}

bool worth_moving(int shards, const std::vector<ShardAssignment>& now, const std::vector<ShardAssignment>& next,
                  const std::map<int, double>& speeds, double step_seconds, double move_seconds,
                  const PlannerOptions& options) {
  if (now == next) return false;
  const double before = cost_of(shards, now, speeds, options).step_seconds;
  const double saved = before - cost_of(shards, next, speeds, options).step_seconds;
  // A measured step has parts that no plan makes shorter.
  const double gain = saved / std::max(step_seconds, before);
  return gain >= options.min_gain && gain * options.pay_back_seconds >= move_seconds;
}

std::string plan_text(int shards, const std::vector<ShardAssignment>& plan, const std::map<int, double>& speeds,
                      const PlannerOptions& options) {
  std::string text = fmt::format("{} shards on {} worker{}:", shards, plan.size(), plan.size() == 1 ? "" : "s");
  for (const ShardAssignment& a : plan) text += fmt::format(" {}", a.range.size());
  const double lost = plan.empty() ? 0 : 1 - cost_of(shards, plan, speeds, options).efficiency;
  if (lost >= 0.005) text += fmt::format(" ({:.1f} % lost to whole shards)", lost * 100);
  return text;
}

}  // namespace tandem
