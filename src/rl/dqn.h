// rl/dqn.h -- dueling double DQN with n-step returns and prioritized replay, on any environment.
//
// A shard owns environments and a ring for each; the rings together are one replay buffer. A step:
//   act     each shard gives the last step's draws their new priorities, plays one decision in its environments and
//           stores it                                        counts: episodes ended, mass of each shard's priorities
//   serve   each shard finds the draws that fall into its own mass (rl/draws_of_step.h) and sends their transitions to
//           the shards that learn from them, draw k to shard k / (batch / shards)      mail; maximum: least priority
//   learn   the Q update, each error times its importance weight, normalised by the largest weight of the step's draws
//                                                             gradients; sums: loss, mean Q, the error of every draw
// The errors come back in one sum of which each shard fills its own part, so that a step needs no second mail and learn
// can be recorded. They are applied by the next step's act: until then they are part of the replicated state.
// New rows get the largest priority seen so far. What is drawn before the first step is played at random in
// init_shard().
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/recipe.h"
#include "rl/dqn_settings.h"
#include "rl/environment.h"
#include "rl/evaluate.h"
#include "rl/replay.h"

namespace tandem {

class DuelingCpu;
class DuelingNetImpl;

class Dqn : public Recipe {
 public:
  // `settings` must outlive it.
  Dqn(const DqnSettings& settings, std::unique_ptr<Environment> environment);
  ~Dqn() override;

  void build(JobState& state) override;
  std::vector<Phase> phases() const override;
  void init_shard(ShardContext& context) override;
  std::vector<at::Tensor> inputs(const Phase& phase, ShardContext& context) override;
  void run(const Phase& phase, ShardContext& context) override;
  void apply(const Phase& phase, const Total& total, StepContext& context) override;
  int64_t steps_in(const std::string& unit, int64_t count) const override;
  std::string unit() const override { return "transitions"; }
  std::string take_note() override { return environment_->take_note(); }

  const Environment& environment() const { return *environment_; }
  at::Tensor q_values(const at::Tensor& states) const;                           // without dropout
  std::vector<int32_t> best_actions(std::span<const float> observations) const;  // of each, one after the other
  Evaluation evaluate(int64_t episodes, uint64_t seed) const;

 private:
  Replay replay(ShardContext& context);
  void act(ShardContext& context);
  void serve(ShardContext& context);
  void learn(ShardContext& context);
  void learn_by_hand(ShardContext& context);
  std::vector<RandomSource> masks(const ShardContext& context) const;
  int first_error(const ShardContext& context) const;  // of this piece, among learn's sums
  DuelingCpu* by_hand() const;  // null where the net runs as tensor operations: on a card, in less than fp32, attention
  void acted(const Total& total, StepContext& context);
  void learned(const Total& total, StepContext& context);
  double share_done(int64_t step, int64_t steps) const;
  double epsilon(int64_t step) const;
  double beta(int64_t step) const;

  const DqnSettings& s_;
  std::unique_ptr<Environment> environment_;
  ReplayShape shape_;
  std::shared_ptr<DuelingNetImpl> net_, target_;
  mutable std::unique_ptr<DuelingCpu> by_hand_;
  at::Tensor sums_, errors_, tops_, average_;
  ShardField states_, returns_, seen_, rows_, written_, priorities_, drawn_;
};

}  // namespace tandem
