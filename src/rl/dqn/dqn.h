// rl/dqn/dqn.h -- dueling double DQN with n-step returns and prioritized replay, on any environment.
//
// A shard owns environments and a ring for each; all rings are one replay buffer. A step, and what it combines:
//   act     each shard updates the priorities of the last step's draws, steps its environments and stores the results
//             counts: episodes ended, mass of each shard's priorities, returns of its episodes (ActCounts)
//   serve   each shard finds the draws that fall into its own mass (rl/replay/draws_of_step.h) and sends the
//           transitions to the shards that learn from them, draw k to shard k / (batch / shards)
//             exchange: the transitions; maximum: least priority
//   learn   the Q update, each TD error times its importance weight, normalised by the step's largest weight
//             gradients; sums: loss, mean Q, the TD error of every draw
// TD errors return in one sum of which each shard fills its own part, so that a step needs no second exchange and learn
// can be captured. The next step's act applies them; until then they are part of the replicated state.
// New rows get the largest priority seen so far. init_shard() fills the buffer with random steps.
// Several agents of one shape may learn in one job, each to the bits that it would have alone: on a GPU they share
// every launch (rl/dqn/dqn_gpu.h).
#pragma once

#include <bit>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/recipe.h"
#include "rl/dqn/dqn_gpu.h"
#include "rl/dqn/dqn_settings.h"
#include "rl/environment.h"
#include "rl/evaluate.h"
#include "rl/replay/replay.h"

namespace tandem {

class DqnOnGpu;
class DuelingCpu;
class DuelingNetImpl;
class Experience;

// What one agent consists of.
struct DqnAgent {
  std::string name;  // prefix of its tensors and metrics, where there are several agents
  std::shared_ptr<const Environment> environment;
  std::shared_ptr<DuelingNetImpl> net, target;
  std::shared_ptr<DuelingCpu> cpu_net;
  // Mass of each shard's priorities; TD errors of the last draws; largest priority seen and least one drawn.
  at::Tensor priority_sums, td_errors, priority_range, average;
  ShardField states, returns, seen, rows, written, priorities, drawn;
};

// What acting counts for one agent. Returns are floats, whose sum depends on its order: they travel bit by bit, each
// shard's in its own place, and acted() adds them along the tree. So the phase has no vector of floats to combine,
// which a GPU would send through its memory.
struct ActCounts {
  int64_t* at;
  int64_t shards;
  static int64_t words(int64_t shards) { return acted_words(shards); }
  static ActCounts of(std::span<int64_t> counts, int agent, int64_t shards) {
    return {counts.data() + agent * words(shards), shards};
  }
  int64_t& episodes() const { return at[0]; }
  int64_t& priority_sum(int64_t shard) const { return at[1 + shard]; }
  void set_returns(int64_t shard, float returns) const {
    at[1 + shards + shard] = static_cast<int64_t>(std::bit_cast<uint32_t>(returns));
  }
};

enum DqnPhase : int { kActPhase, kServePhase, kLearnPhase };  // Phase::id

class Dqn : public Recipe {
 public:
  struct Named {
    std::string name;
    std::unique_ptr<Environment> environment;
  };
  // `settings` must outlive it. Environments of several agents have equal sizes.
  Dqn(const DqnSettings& settings, std::vector<Named> agents);
  Dqn(const DqnSettings& settings, std::unique_ptr<Environment> environment);
  ~Dqn() override;

  void build(JobState& state) override;
  std::vector<Phase> phases() const override;
  void init_shard(ShardContext& context) override;  // reads settings.experience, if it names any
  std::vector<at::Tensor> inputs(const Phase& phase, ShardContext& context) override;
  void run(const Phase& phase, ShardContext& context) override;
  void run_batched(const Phase& phase, std::span<ShardContext> shards, std::span<const Subtree> sums) override;
  void apply(const Phase& phase, const Total& total, StepContext& context) override;
  std::unique_ptr<FusedStep> fused_step(JobState& state) override;
  bool has_own_arithmetic() const override { return on_gpu_ != nullptr; }
  int64_t steps_in(const std::string& unit, int64_t count) const override;
  std::string unit() const override { return "transitions"; }
  std::string take_note() override;

  void rest(bool resting);  // for measurements on a GPU: from the next capture on environments are not stepped
  int agents() const { return static_cast<int>(agents_.size()); }
  const Environment& environment(int agent = 0) const { return *agents_[agent].environment; }
  at::Tensor q_values(const at::Tensor& states, int agent = 0) const;            // without dropout
  std::vector<int32_t> best_actions(std::span<const float> observations) const;  // of each, one after the other
  Evaluation evaluate(int64_t episodes, uint64_t seed, int agent = 0) const;

 private:
  enum LearnSum { kLoss, kMeanQ, kTdErrors };  // of each agent
  Replay replay(DqnAgent& agent, ShardContext& context);
  void begin_agent(DqnAgent& agent, ShardContext& context);
  void act(int agent, ShardContext& context);
  void give_priorities(DqnAgent& agent, ShardContext& context);  // to the last step's draws
  void step_environments(int agent, ShardContext& context, const float* seen, const int64_t* best);
  void serve(int agent, ShardContext& context);
  void learn(int agent, ShardContext& context);
  void learn_on_cpu(int agent, ShardContext& context);
  // ---- all shards of a worker, batched: dqn_batched.cc ----
  void act_batched(int agent, std::span<ShardContext> shards);
  void learn_batched(int agent, std::span<ShardContext> shards, std::span<const Subtree> sums);
  std::vector<RandomSource> masks(const ShardContext& context) const;
  int first_sum(int agent) const;                                    // of this agent, among learn's
  int first_td_error(int agent, const ShardContext& context) const;  // of this micro-batch
  bool uses_cpu_kernels() const;  // else the net runs through libtorch: on a GPU, in less than fp32, with attention
  DuelingCpu* cpu_net(int agent) const;  // null where it does not
  // ---- dqn_apply.cc ----
  void acted(const Total& total, StepContext& context);
  void record_acted(std::span<const int64_t> counts, StepContext& context);
  void served(const Total& total, StepContext& context);
  void learned(const Total& total, StepContext& context);
  int64_t* priority_range_on_host(int agent);
  void record_returns(int agent, double ended, double returns, StepContext& context);
  std::string metric(int agent, const std::string& name) const;
  double share_done(int64_t step, int64_t steps) const;
  double epsilon(int64_t step) const;
  double beta(int64_t step) const;

  friend class DqnOnGpu;
  friend class DqnFusedStep;
  const DqnSettings& s_;
  ReplayShape shape_;
  std::vector<int> merges_;  // SumTree::merges() of all shards
  mutable std::vector<DqnAgent> agents_;
  std::string note_;
  std::unique_ptr<const Experience> experience_;  // until the first step
  std::unique_ptr<DqnOnGpu> on_gpu_;              // null: the phases run through libtorch and the host
};

}  // namespace tandem
