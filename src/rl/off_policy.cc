#include "rl/off_policy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "rl/replay/experience.h"
#include "rl/tree_grower.h"

namespace tandem {
namespace {

constexpr RandomKey kCutSource{0x6F70u, 0, 0, 0xFE10u};  // of the one fixed seed; the step is the tree's number
constexpr double kNear = 1e-7;                           // of the largest: the iteration has arrived
constexpr int kMostRounds = 5000;                        // 0.99^5000 is below 1e-21

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

void LoggedEpisodes::append(const LoggedEpisodes& others) {
  for (const int64_t start : others.starts) starts.push_back(rows() + start);
  states.insert(states.end(), others.states.begin(), others.states.end());
  next_states.insert(next_states.end(), others.next_states.begin(), others.next_states.end());
  actions.insert(actions.end(), others.actions.begin(), others.actions.end());
  rewards.insert(rewards.end(), others.rewards.begin(), others.rewards.end());
  terminal.insert(terminal.end(), others.terminal.begin(), others.terminal.end());
}

LoggedEpisodes held_out_episodes(const Experience& experience) {
  LoggedEpisodes log;
  log.state_size = experience.shape().states;
  log.action_count = experience.shape().actions;
  std::vector<ExperienceRow> rows;
  experience.each(true, [&](const ExperienceRow& row) { rows.push_back(row); });
  const size_t width = static_cast<size_t>(log.state_size);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i == 0 || rows[i].episode != rows[i - 1].episode) log.begin_episode();
    const float* const next = rows[i].next ? rows[i].next : rows[i + 1].state;
    log.add({rows[i].state, width}, rows[i].action, rows[i].reward, {next, width}, rows[i].end == End::kTerminated);
  }
  return log;
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
  PolicyValue out{std::numeric_limits<double>::quiet_NaN(), 0, std::vector<double>(episodes, 0)};
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
  std::vector<size_t> episode_of(targets.size());
  for (size_t e = 0; e < episodes; ++e)
    for (size_t row = static_cast<size_t>(log_.starts[e]);
         row < (e + 1 < episodes ? static_cast<size_t>(log_.starts[e + 1]) : targets.size()); ++row)
      episode_of[row] = e;
  for (size_t e = 0; e < episodes; ++e) out.influence[e] = (begun[e] - out.value) / static_cast<double>(episodes);
  for (size_t leaf = 0; leaf < of_leaf.size(); ++leaf) {
    const double share = weight[leaf] / static_cast<double>(forest_->leaves[leaf].size());
    for (const int64_t row : forest_->leaves[leaf])
      out.influence[episode_of[static_cast<size_t>(row)]] +=
          share * (targets[static_cast<size_t>(row)] - of_leaf[leaf]);
  }
  return out;
}

ValueChange value_change(const PolicyValue& before, const PolicyValue& after) {
  ValueChange out{after.value - before.value};
  const double n = static_cast<double>(before.influence.size());
  double squares = 0;
  for (size_t e = 0; e < before.influence.size(); ++e) {
    const double own = after.influence[e] - before.influence[e];
    squares += own * own;
  }
  const double half =
      n > 1 ? student_t_95(static_cast<int64_t>(before.influence.size()) - 1) * std::sqrt(squares * n / (n - 1)) : 0;
  out.low = out.change - half;
  out.high = out.change + half;
  return out;
}

// Cornish-Fisher's expansion about the normal quantile; within 1 % from 3 degrees on.
double student_t_95(int64_t degrees) {
  const double z = 1.959964, v = static_cast<double>(std::max<int64_t>(degrees, 1));
  const double z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
  return z + (z3 + z) / (4 * v) + (5 * z5 + 16 * z3 + 3 * z) / (96 * v * v) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * v * v * v);
}

}  // namespace tandem
