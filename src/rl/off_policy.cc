#include "rl/off_policy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "rl/tree_grower.h"

namespace tandem {
namespace {

constexpr RandomKey kCutSource{0x6F70u, 0, 0, 0xFE10u};  // of the one fixed seed; the step is the tree's number
constexpr double kNear = 1e-7;                           // of the largest: the iteration has arrived

using Copies = std::map<std::string, int64_t>;

// What copies each id has; those without an id are like no other.
Copies copies_of(const LoggedEpisodes& log) {
  Copies out;
  for (const std::string& id : log.ids)
    if (!id.empty()) ++out[id];
  return out;
}

double half_width(double squares, size_t episodes) {
  const double n = static_cast<double>(episodes);
  return n > 1 ? student_t_95(static_cast<int64_t>(episodes) - 1) * std::sqrt(squares * n / (n - 1)) : 0;
}

double largest_size(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

}  // namespace

void LoggedEpisodes::add(std::span<const float> state, int32_t action, float reward, std::span<const float> next_state,
                         bool over) {
  states.insert(states.end(), state.begin(), state.end());
  next_states.insert(next_states.end(), next_state.begin(), next_state.end());
  actions.push_back(action);
  rewards.push_back(reward);
  terminal.push_back(over ? 1 : 0);
}

int64_t LoggedEpisodes::different() const {
  return static_cast<int64_t>(copies_of(*this).size()) + std::ranges::count(ids, std::string());
}

void LoggedEpisodes::add_episode(const LoggedEpisodes& from, int64_t episode) {
  begin_episode(from.ids[static_cast<size_t>(episode)]);
  const int64_t first = from.starts[static_cast<size_t>(episode)], last = from.end(episode);
  const auto copy = [](auto& to, const auto& other, int64_t begin, int64_t end) {
    to.insert(to.end(), other.begin() + begin, other.begin() + end);
  };
  copy(states, from.states, first * state_size, last * state_size);
  copy(next_states, from.next_states, first * state_size, last * state_size);
  copy(actions, from.actions, first, last);
  copy(rewards, from.rewards, first, last);
  copy(terminal, from.terminal, first, last);
}

void LoggedEpisodes::append(const LoggedEpisodes& others) {
  Copies known = copies_of(*this);
  for (int64_t e = 0; e < others.episodes(); ++e) {
    const auto copy = known.find(others.ids[static_cast<size_t>(e)]);
    if (copy == known.end() || copy->second-- <= 0) add_episode(others, e);
  }
}

LoggedEpisodes LoggedEpisodes::at_most(int64_t most_rows) const {
  if (rows() <= most_rows) return *this;
  std::vector<int64_t> order(static_cast<size_t>(episodes()));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, [&](int64_t a, int64_t b) { return ids[static_cast<size_t>(a)] < ids[static_cast<size_t>(b)]; });
  std::set<int64_t> chosen;  // in their own order: the trees' cuts follow it
  int64_t taken = 0;
  for (size_t first = 0; first < order.size();) {
    size_t last = first + 1;
    int64_t size = end(order[first]) - starts[static_cast<size_t>(order[first])];
    const std::string& id = ids[static_cast<size_t>(order[first])];
    for (; last < order.size() && !id.empty() && ids[static_cast<size_t>(order[last])] == id; ++last)
      size += end(order[last]) - starts[static_cast<size_t>(order[last])];
    if (!chosen.empty() && taken + size > most_rows) break;
    taken += size;
    for (; first < last; ++first) chosen.insert(order[first]);
  }
  LoggedEpisodes out;
  out.state_size = state_size;
  out.action_count = action_count;
  for (const int64_t episode : chosen) out.add_episode(*this, episode);
  return out;
}

// The trees, and which rows each leaf averages.
struct FittedQEvaluation::Forest {
  struct Group {
    std::vector<Tree> trees;
  };
  std::vector<Group> groups;      // of each action that has rows enough, then of all actions
  std::vector<int32_t> group_of;  // by action
  std::vector<std::vector<int64_t>> leaves;

  // Half of the trees tell apart what pays at once, half what pays in the end.
  Forest(const LoggedEpisodes& log, const std::vector<double>& returns) {
    const std::vector<double> rewards(log.rewards.begin(), log.rewards.end());
    const std::vector<double>* const targets[2] = {&rewards, &returns};
    std::vector<std::vector<int64_t>> rows(static_cast<size_t>(log.action_count));
    std::vector<int64_t> all;
    for (int64_t row = 0; row < log.rows(); ++row) {
      rows[static_cast<size_t>(log.actions[static_cast<size_t>(row)])].push_back(row);
      all.push_back(row);
    }
    for (const auto& own : rows) {
      const bool enough = static_cast<int64_t>(own.size()) >= kLeafRows;
      group_of.push_back(enough ? static_cast<int32_t>(groups.size()) : -1);
      if (enough) add_group(log, targets, own);
    }
    const int32_t common = static_cast<int32_t>(groups.size());
    if (std::ranges::find(group_of, -1) != group_of.end()) add_group(log, targets, all);
    for (int32_t& group : group_of) {
      known.push_back(group >= 0);
      if (group < 0) group = common;
    }
  }
  std::vector<bool> known;  // by action: it has trees of its own

 private:
  void add_group(const LoggedEpisodes& log, const std::vector<double>* const* targets,
                 const std::vector<int64_t>& rows) {
    Group group;
    for (int tree = 0; tree < kTrees; ++tree) {
      TreeTask task{.states = log.states.data(),
                    .state_size = log.state_size,
                    .targets = targets[tree % 2]->data(),
                    .least_rows = kLeafRows,
                    .tried_features = kTriedFeatures,
                    .key = kCutSource,
                    .first_leaf = static_cast<int32_t>(leaves.size())};
      task.key.step = groups.size() * kTrees + static_cast<size_t>(tree);
      group.trees.push_back(grow_tree(task, rows));
      for (auto& leaf : group.trees.back().rows) leaves.push_back(std::move(leaf));
      group.trees.back().rows.clear();
    }
    groups.push_back(std::move(group));
  }
};

// The two fixed points of a policy: what its decisions are worth, and how often it meets each leaf.
struct FittedQEvaluation::Flow {
  const LoggedEpisodes& log;
  const std::vector<std::vector<int64_t>>& leaves;
  const std::vector<int32_t>&first, &next;  // leaves of the episodes' first decisions, and of those after each row
  double gamma;

  double discount(size_t row) const { return log.terminal[row] ? 0 : gamma; }
  static double mean(const std::vector<double>& of_leaf, const std::vector<int32_t>& where, size_t decision) {
    double sum = 0;
    for (size_t t = 0; t < kTrees; ++t) sum += of_leaf[static_cast<size_t>(where[decision * kTrees + t])];
    return sum / kTrees;
  }

  // The mean of r + gamma Q(next) in each leaf; `targets`: the same of each row.
  std::vector<double> solve(std::vector<double>& targets) const {
    std::vector<double> of_leaf(leaves.size(), 0);
    for (int round = 0; round < kMostRounds; ++round) {
      double moved = 0;
      for (size_t leaf = 0; leaf < leaves.size(); ++leaf) {
        double sum = 0;
        for (const int64_t row : leaves[leaf]) sum += targets[static_cast<size_t>(row)];
        of_leaf[leaf] = sum / static_cast<double>(leaves[leaf].size());
      }
      for (size_t row = 0; row < targets.size(); ++row) {
        const double after = log.rewards[row] + (log.terminal[row] ? 0 : gamma * mean(of_leaf, next, row));
        moved = std::max(moved, std::abs(after - targets[row]));
        targets[row] = after;
      }
      if (moved <= kNear * largest_size(targets)) break;
    }
    return of_leaf;
  }

  // The weight with which each leaf's mean enters the value.
  std::vector<double> weights() const {
    const double each = 1 / (static_cast<double>(log.episodes()) * kTrees);
    std::vector<double> begin(leaves.size(), 0);
    for (const int32_t leaf : first) begin[static_cast<size_t>(leaf)] += each;
    std::vector<double> weight = begin, of_row(static_cast<size_t>(log.rows()));
    for (int round = 0; round < kMostRounds; ++round) {
      std::ranges::fill(of_row, 0.0);
      for (size_t leaf = 0; leaf < leaves.size(); ++leaf) {
        const double share = weight[leaf] / static_cast<double>(leaves[leaf].size());
        for (const int64_t row : leaves[leaf]) of_row[static_cast<size_t>(row)] += share;
      }
      std::vector<double> after = begin;
      for (size_t row = 0; row < of_row.size(); ++row)
        for (size_t t = 0; t < kTrees; ++t)
          after[static_cast<size_t>(next[row * kTrees + t])] += discount(row) * of_row[row] / kTrees;
      double moved = 0;
      for (size_t leaf = 0; leaf < leaves.size(); ++leaf) moved += std::abs(after[leaf] - weight[leaf]);
      weight.swap(after);
      if (moved <= kNear) break;
    }
    return weight;
  }
};

FittedQEvaluation::FittedQEvaluation(const LoggedEpisodes& log, double gamma)
    : log_(log), gamma_(std::min(gamma, kMostGamma)) {
  own_returns();
  group_copies();
  forest_ = std::make_unique<Forest>(log, returns_);
}

FittedQEvaluation::~FittedQEvaluation() = default;

void FittedQEvaluation::own_returns() {
  returns_.assign(static_cast<size_t>(log_.rows()), 0);
  const int64_t n = log_.episodes();
  std::vector<double> whole;
  for (int64_t e = n; e-- > 0;) {
    const int64_t end = e + 1 < n ? log_.starts[static_cast<size_t>(e + 1)] : log_.rows();
    double sum = 0;
    for (int64_t row = end; row-- > log_.starts[static_cast<size_t>(e)];)
      returns_[static_cast<size_t>(row)] = sum = log_.rewards[static_cast<size_t>(row)] + gamma_ * sum;
    whole.push_back(sum);
  }
  for (const double value : whole) own_return_ += value / static_cast<double>(n);
  double squares = 0;
  for (const double value : whole) squares += (value - own_return_) * (value - own_return_);
  if (n > 1) unit_ = std::sqrt(squares / static_cast<double>(n - 1));
  if (unit_ == 0) unit_ = std::abs(own_return_);
}

void FittedQEvaluation::group_copies() {
  std::map<std::string, size_t> known;
  size_t count = 0;
  for (const std::string& id : log_.ids) {
    const auto place = known.find(id);
    different_.push_back(!id.empty() && place != known.end() ? place->second : count);
    if (different_.back() != count) continue;
    if (!id.empty()) known[id] = count;
    ++count;
  }
}

PolicyValue FittedQEvaluation::as_played() const {
  const size_t n = different_.size();
  PolicyValue out{own_return_, 1, std::vector<double>(*std::ranges::max_element(different_) + 1, 0)};
  for (size_t e = 0; e < n; ++e)
    out.influence[different_[e]] +=
        (returns_[static_cast<size_t>(log_.starts[e])] - own_return_) / static_cast<double>(n);
  return out;
}

std::vector<int32_t> FittedQEvaluation::leaves_of(const float* states, const std::vector<int32_t>& actions) const {
  std::vector<int32_t> out;
  out.reserve(actions.size() * kTrees);
  for (size_t i = 0; i < actions.size(); ++i) {
    const int32_t group = forest_->group_of[static_cast<size_t>(actions[i])];
    for (const Tree& tree : forest_->groups[static_cast<size_t>(group)].trees)
      out.push_back(tree.leaf_of(states + static_cast<int64_t>(i) * log_.state_size));
  }
  return out;
}

PolicyValue FittedQEvaluation::value(const StatePolicy& policy) const {
  const size_t episodes = static_cast<size_t>(log_.episodes()), width = static_cast<size_t>(log_.state_size);
  std::vector<float> beginnings;
  for (const int64_t start : log_.starts) {
    const auto at = log_.states.begin() + start * log_.state_size;
    beginnings.insert(beginnings.end(), at, at + static_cast<int64_t>(width));
  }
  std::vector<int32_t> first(episodes), next(static_cast<size_t>(log_.rows()));
  policy(beginnings.data(), log_.episodes(), first.data());
  policy(log_.next_states.data(), log_.rows(), next.data());
  PolicyValue out{std::numeric_limits<double>::quiet_NaN(), 0,
                  std::vector<double>(*std::ranges::max_element(different_) + 1, 0)};
  int64_t decisions = 0, known = 0;
  for (const auto* actions : {&first, &next})
    for (size_t i = 0; i < actions->size(); ++i) {
      const int32_t action = (*actions)[i];
      if (action < 0 || action >= log_.action_count) return out;
      if (actions == &next && log_.terminal[i]) continue;
      ++decisions;
      known += forest_->known[static_cast<size_t>(action)] ? 1 : 0;
    }
  out.known = static_cast<double>(known) / static_cast<double>(decisions);

  const std::vector<int32_t> first_leaves = leaves_of(beginnings.data(), first),
                             next_leaves = leaves_of(log_.next_states.data(), next);
  const Flow flow{log_, forest_->leaves, first_leaves, next_leaves, gamma_};
  std::vector<double> targets = returns_;
  const std::vector<double> of_leaf = flow.solve(targets), weight = flow.weights();
  std::vector<double> begun(episodes);
  out.value = 0;
  for (size_t e = 0; e < episodes; ++e) {
    begun[e] = Flow::mean(of_leaf, first_leaves, e);
    out.value += begun[e] / static_cast<double>(episodes);
  }
  std::vector<size_t> owner(targets.size());
  for (size_t e = 0; e < episodes; ++e) {
    std::fill(owner.begin() + log_.starts[e], owner.begin() + log_.end(static_cast<int64_t>(e)), different_[e]);
    out.influence[different_[e]] += (begun[e] - out.value) / static_cast<double>(episodes);
  }
  for (size_t leaf = 0; leaf < of_leaf.size(); ++leaf) {
    const double share = weight[leaf] / static_cast<double>(forest_->leaves[leaf].size());
    for (const int64_t row : forest_->leaves[leaf])
      out.influence[owner[static_cast<size_t>(row)]] += share * (targets[static_cast<size_t>(row)] - of_leaf[leaf]);
  }
  return out;
}

ValueChange value_change(const PolicyValue& before, const PolicyValue& after) {
  ValueChange out{after.value - before.value};
  double squares = 0;
  for (size_t e = 0; e < before.influence.size(); ++e) {
    const double own = after.influence[e] - before.influence[e];
    squares += own * own;
  }
  const double half = half_width(squares, before.influence.size());
  out.low = out.change - half;
  out.high = out.change + half;
  return out;
}

double value_half_width(const PolicyValue& value) {
  double squares = 0;
  for (const double own : value.influence) squares += own * own;
  return half_width(squares, value.influence.size());
}

// Cornish-Fisher's expansion about the normal quantile; within 1 % from 3 degrees on.
double student_t_95(int64_t degrees) {
  const double z = 1.959964, v = static_cast<double>(std::max<int64_t>(degrees, 1));
  const double z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
  return z + (z3 + z) / (4 * v) + (5 * z5 + 16 * z3 + 3 * z) / (96 * v * v) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * v * v * v);
}

}  // namespace tandem
