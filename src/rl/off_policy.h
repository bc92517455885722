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
// episodes), by Student's t. Two policies are compared on the same trees, episode by episode.
//
// Limits: it sees no effect of a cause that the state does not show, and knows little of actions that the episodes
// hardly have (`known`). Everything is a function of the episodes: the random cuts have one fixed seed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace tandem {

class Experience;

inline constexpr char kOffPolicyMethod[] = "fitted Q evaluation";

struct LoggedEpisodes {
  int64_t state_size = 0, action_count = 0;
  std::vector<float> states, next_states;  // [rows, state_size]
  std::vector<int32_t> actions;
  std::vector<float> rewards;
  std::vector<char> terminal;   // nothing comes after it
  std::vector<int64_t> starts;  // first row of each episode

  int64_t rows() const { return static_cast<int64_t>(actions.size()); }
  int64_t episodes() const { return static_cast<int64_t>(starts.size()); }
  void begin_episode() { starts.push_back(rows()); }
  void add(std::span<const float> state, int32_t action, float reward, std::span<const float> next_state, bool over);
  // After its own; both have the same sizes.
  void append(const LoggedEpisodes& others);
};

// The episodes that are never learned from.
LoggedEpisodes held_out_episodes(const Experience& experience);

// Actions for n states; below 0 where the policy has none (its values are no numbers).
using StatePolicy = std::function<void(const float* states, int64_t n, int32_t* actions)>;

struct PolicyValue {
  double value = 0;               // discounted return of an episode; NaN: the policy had no action
  double known = 0;               // share of its decisions whose action the episodes have often enough
  std::vector<double> influence;  // of each episode on the value; they add up to 0
};

struct ValueChange {
  double change = 0, low = 0, high = 0;  // after - before, and its 95 % interval
};
ValueChange value_change(const PolicyValue& before, const PolicyValue& after);
double student_t_95(int64_t degrees);  // half width of a 95 % interval, in standard errors

class FittedQEvaluation {
 public:
  static constexpr int kTrees = 32;
  static constexpr int64_t kLeafRows = 5, kTriedFeatures = 32;
  static constexpr double kMostGamma = 0.99;  // so that an endless succession has a value

  // Keeps a reference to `log`, which must have a row.
  FittedQEvaluation(const LoggedEpisodes& log, double gamma);
  ~FittedQEvaluation();

  PolicyValue value(const StatePolicy& policy) const;
  double own_return() const { return own_return_; }  // mean discounted return of the episodes themselves
  double unit() const { return unit_; }              // their standard deviation; where that is 0 their mean's size

 private:
  struct Forest;
  struct Flow;
  void own_returns();
  std::vector<int32_t> leaves_of(const float* states, const std::vector<int32_t>& actions) const;

  const LoggedEpisodes& log_;
  double gamma_, own_return_ = 0, unit_ = 0;
  std::vector<double> returns_;  // of each row, as played
  std::unique_ptr<Forest> forest_;
};

}  // namespace tandem
