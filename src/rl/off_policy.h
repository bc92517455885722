// rl/off_policy.h -- what a policy would earn, from episodes that others played: fitted Q evaluation. No libtorch.
//
// Neither an environment nor the probabilities of the actions taken are needed. Q of the policy solves
//   Q(s, a) = mean over like rows of r + gamma * Q(s', policy(s'))
// Like rows have the same action and lie in the same leaf of a randomised tree over states (Ernst, Geurts, Wehenkel
// 2005); the mean is that of kTrees trees. An action with fewer than kLeafRows rows has no trees of its own: it is
// taken to be worth what all actions were in like states. Such means keep the iteration a contraction, and a value
// within what the rewards allow, whatever the data. The value of a policy is the mean of Q over the first states of the
// episodes.
//
// The interval comes from what each episode contributes to a value (its influence, the first order of a bootstrap over
// episodes), by Student's t. Two policies are compared on the same trees, episode by episode. Copies of one episode
// contribute together, so that they make no interval narrower. It is an interval of chance: how the estimate would vary
// over other episodes of the same kind. It does not cover what trees over few rows smooth away, which makes differences
// look smaller than they are, never larger: then the truth lies outside, further from 0 (off_policy_test.cc measures
// both).
//
// Work is bounded: kMostRows rows at most, of whole episodes in the order of their ids, which is a random one that
// depends on their contents alone; and kMostRounds sweeps.
//
// Limits: it sees no effect of a cause that the state does not show, and knows little of actions that the episodes
// hardly have (`known`). Everything is a function of the episodes: the random cuts have one fixed seed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

inline constexpr char kOffPolicyMethod[] = "fitted Q evaluation";
inline constexpr int64_t kFewestEpisodes = 5;  // different ones, to be judged by

struct LoggedEpisodes {
  int64_t state_size = 0, action_count = 0;
  std::vector<float> states, next_states;  // [rows, state_size]
  std::vector<int32_t> actions;
  std::vector<float> rewards;
  std::vector<char> terminal;    // nothing comes after it
  std::vector<int64_t> starts;   // first row of each episode
  std::vector<std::string> ids;  // of each: equal ones are copies; empty: like no other

  int64_t rows() const { return static_cast<int64_t>(actions.size()); }
  int64_t episodes() const { return static_cast<int64_t>(starts.size()); }
  int64_t end(int64_t episode) const {  // the row after its last
    return episode + 1 < episodes() ? starts[static_cast<size_t>(episode + 1)] : rows();
  }
  int64_t different() const;  // episodes, copies counted once
  void begin_episode(std::string id = "") {
    starts.push_back(rows());
    ids.push_back(std::move(id));
  }
  void add(std::span<const float> state, int32_t action, float reward, std::span<const float> next_state, bool over);
  void add_episode(const LoggedEpisodes& from, int64_t episode);
  // After its own; both have the same sizes. Copies of what it has are left out: an episode is there as often as in the
  // one of the two that has it most often.
  void append(const LoggedEpisodes& others);
  // Whole episodes with so many rows together, the smallest ids first; all copies of an episode or none. One at least.
  LoggedEpisodes at_most(int64_t most_rows) const;
};

// Actions for n states; below 0 where the policy has none (its values are no numbers).
using StatePolicy = std::function<void(const float* states, int64_t n, int32_t* actions)>;

struct PolicyValue {
  double value = 0;               // discounted return of an episode; NaN: the policy had no action
  double known = 0;               // share of its decisions whose action the episodes have often enough
  std::vector<double> influence;  // of each different episode on the value; they add up to 0
};

struct ValueChange {
  double change = 0, low = 0, high = 0;  // after - before, and its 95 % interval
};
ValueChange value_change(const PolicyValue& before, const PolicyValue& after);
double value_half_width(const PolicyValue& value);  // of the 95 % interval of one policy's value
double student_t_95(int64_t degrees);               // half width of a 95 % interval, in standard errors

class FittedQEvaluation {
 public:
  static constexpr int kTrees = 32;
  static constexpr int64_t kLeafRows = 5, kTriedFeatures = 32;
  static constexpr double kMostGamma = 0.99;  // so that an endless succession has a value
  static constexpr int64_t kMostRows = 10'000;
  static constexpr int kMostRounds = 2000;  // 0.99^2000 is below 1e-8

  // Keeps a reference to `log`, which must have a row, and of which at_most(kMostRows) should be given.
  FittedQEvaluation(const LoggedEpisodes& log, double gamma);
  ~FittedQEvaluation();

  PolicyValue value(const StatePolicy& policy) const;
  PolicyValue as_played() const;                     // the same of who played the episodes: nothing is fitted
  double own_return() const { return own_return_; }  // mean discounted return of the episodes themselves
  double unit() const { return unit_; }              // their standard deviation; where that is 0 their mean's size

 private:
  struct Forest;
  struct Flow;
  void own_returns();
  void group_copies();
  std::vector<int32_t> leaves_of(const float* states, const std::vector<int32_t>& actions) const;

  const LoggedEpisodes& log_;
  double gamma_, own_return_ = 0, unit_ = 0;
  std::vector<double> returns_;    // of each row, as played
  std::vector<size_t> different_;  // of each episode: its number among different ones
  std::unique_ptr<Forest> forest_;
};

}  // namespace tandem
