// rl/ppo/ppo.h -- proximal policy optimization on any environment, with discrete or continuous actions.
//
// A step is one update. A shard owns environments and the rollout of their last steps (rl/ppo/ppo_kernels.h):
//   collect  every epochs x mini-batches steps: `horizon` steps of each environment by the present policy
//              sums: returns of episodes, squares of discounted returns; counts: steps, episodes
//   advantages  of the same rollout, with the scale of rewards that these sums gave
//              sums: advantages and their squares; counts: steps
//   learn    the clipped loss of a mini-batch, each epoch in a new order
//              gradients; sums: the loss and its terms
// Advantages are normalised over the whole rollout of all shards, so a mini-batch needs no sums of its own.
// Where an episode ends, the next step of its environment is idle: the net sees the last observation once more and says
// what it is worth (a truncated episode would have gone on), and a new episode has begun. Idle steps have weight 0.
// Pre-training (pretrain.iterations) is its first updates: they learn what comes after the rows of the environment's
// table, from the steps of the same rollouts, and move neither policy nor value.
// Dropout draws the same mask for a step when it is played and whenever it is learned from: until the weights change,
// the ratio of new to old probability is 1.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/recipe.h"
#include "rl/environment.h"
#include "rl/ppo/policy_net.h"
#include "rl/ppo/ppo_kernels.h"
#include "rl/ppo/ppo_settings.h"

namespace tandem {

class Ppo : public Recipe {
 public:
  // `settings` must outlive it.
  Ppo(const PpoSettings& settings, std::unique_ptr<Environment> environment);
  ~Ppo() override;

  void build(JobState& state) override;
  std::vector<Phase> phases() const override;
  void init_shard(ShardContext& context) override;
  void run(const Phase& phase, ShardContext& context) override;
  void run_batched(const Phase& phase, std::span<ShardContext> shards, std::span<const Subtree> sums) override;
  void apply(const Phase& phase, const Total& total, StepContext& context) override;
  int64_t steps_in(const std::string& unit, int64_t count) const override;
  std::string take_note() override { return environment_->take_note(); }

  const Environment& environment() const { return *environment_; }
  const RolloutShape& shape() const { return shape_; }
  PolicyNet& net() { return *net_; }
  // The likeliest action for each of these observations, one after the other; of a policy without a window. Throws
  // std::logic_error for another.
  std::vector<int32_t> best_actions(std::span<const float> observations) const;

 protected:
  const PpoSettings& settings() const { return s_; }
  const WindowSource& window_source() const { return source_; }

 private:
  enum PhaseId { kCollectPhase, kAdvantagePhase, kLearnPhase };
  enum CollectSum { kReturns, kSquaredReturns, kCollectSums };
  enum AdvantageSum { kAdvantages, kSquares, kAdvantageSums };
  enum CollectCount { kSteps, kEpisodes, kLength, kCollectCounts };
  static_assert(kLength == static_cast<int>(kTalliedLength) && kCollectCounts == static_cast<int>(kTallyCounts));
  Rollout rollout(JobState& job, int shard) const;
  MiniBatchPlan mini_batches() const;
  RolloutClock clock() const { return {s_.updates_per_rollout() * s_.accumulation, shape_.horizon}; }
  // ---- ppo_collect.cc ----
  struct CollectPass;
  struct Collected {
    at::Tensor floats, counts;  // [shards, kCollectSums], [shards, kCollectCounts]
  };
  Collected collect(ShardContext& first, int shards);
  void carry_over(JobState& job, int shard);
  void act(CollectPass& pass, const RandomSource& masks, int64_t t);
  void step_where_the_policy_is(CollectPass& pass, int64_t t);
  void step_on_the_host(CollectPass& pass, int64_t t);
  RolloutTally tally(const CollectPass& pass, int i) const;
  [[noreturn]] static void refuse_rewards(const std::string& where);  // of one that is no number
  void step_awake(std::byte* states, const float* actions, const int32_t* idle, std::vector<Outcome>& out,
                  const RandomKey& key) const;
  void find_advantages(ShardContext& context);
  // ---- learning ----
  void learn(ShardContext& context);
  void collected(const Total& total);
  void scaled(const Total& total);
  void learned(const Total& total, StepContext& context);

  const PpoSettings& s_;
  std::unique_ptr<Environment> environment_;
  RolloutShape shape_;
  std::shared_ptr<PolicyNet> net_;
  at::Tensor table_, before_;    // of window_source()
  at::Tensor forecast_targets_;  // [count, forecasts], with pre-training
  at::Tensor objective_;         // with it: the weights of PPO's loss and of the forecast's, (0, 1) and then (1, 0)
  WindowSource source_;
  std::unique_ptr<RolloutStepper> stepper_;  // null: the host steps the environments
  int64_t forecast_sum() const { return 1 + kPpoTerms; }
  at::Tensor advantage_scale_,
      average_;  // shift and factor, and all rows over real ones; mean return and length of episodes, and whether known
  at::Tensor reward_scale_, spread_;  // the factor; mean square of discounted returns, and of how many steps
  ShardField states_, returns_, discounted_, lengths_, ended_;
  ShardField own_, row_, age_, action_, log_prob_, value_, reward_, end_, weight_, advantage_, target_;
};

}  // namespace tandem
