// rl/environment.h -- the environment interface: any observation size, discrete actions or continuous ones.
//
// An environment object holds no state: the states of a shard's n environments lie in the shard's own memory,
// `state_bytes()` each, and travel with it. All random numbers come from the key; environment i reads only what belongs
// to i, so that n is no part of the result. The calls of one step:
//     observe -> (actions) -> step -> [observe, where an episode was truncated] -> reset those that ended
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/philox.h"
#include "rl/gpu_environment.h"

namespace tandem {

// Terminated: there is nothing after it. Truncated: stopped by a limit that is no part of the problem, so what would
// have come after is worth what its last observation is worth.
enum class End : int32_t { kNone = 0, kTerminated = 1, kTruncated = 2 };

struct Outcome {
  static constexpr int kMostTerms = 8;
  float reward = 0;
  End end = End::kNone;
  float terms[kMostTerms] = {};  // of the reward, where the environment has them
};

// Rows that all environments of a kind share and that never change, such as the days of a market: the other part of
// what a learner with a window sees. The row of environment i is table_rows()[i]; the rows before it are the steps
// before, also those from before its episode began.
struct ObservationTable {
  const float* rows = nullptr;  // [count, width]
  int64_t width = 0, count = 0;
};

// An action is possible while low <= observation[feature] <= high, of the environment's own observation; always, where
// feature is -1.
struct ActionRule {
  int32_t feature = -1;
  float low = 0, high = 0;
};
inline bool is_possible(const ActionRule& rule, const float* observation) {
  return rule.feature < 0 || (observation[rule.feature] >= rule.low && observation[rule.feature] <= rule.high);
}

class Environment {
 public:
  virtual ~Environment() = default;
  virtual int64_t observation_size() const = 0;  // numbers of an observation
  virtual int64_t actions() const = 0;           // how many there are to choose from; 0: they are continuous
  // One for each discrete action; empty: all are always possible. A learner that knows them never tries others; one
  // that does not may, so step() takes any.
  virtual std::vector<ActionRule> action_rules() const { return {}; }
  virtual int64_t action_size() const { return 0; }  // numbers of a continuous action
  virtual int64_t state_bytes() const = 0;           // of one environment's state
  virtual int64_t max_episode_steps() const = 0;     // where an episode is truncated at the latest
  virtual std::vector<std::string> terms() const { return {}; }
  // The return of an episode on the problem's own scale (0 random play, 1 as well as is known), if it has one.
  virtual std::optional<double> score(double /*mean_return*/) const { return std::nullopt; }

  // The same problem on the GPU that this process drives; its kernels give the bits of the functions below.
  virtual std::optional<GpuEnvironment> on_gpu() const { return std::nullopt; }
  // For rollouts whose states lie where the policy computes; null: the host steps them. Must not outlive this.
  virtual std::unique_ptr<RolloutStepper> rollout_stepper() const { return nullptr; }

  // Begins an episode in each, or, given outcomes, in those that ended.
  virtual void reset(std::byte* states, int64_t n, const RandomKey& key, const Outcome* only_ended) const = 0;
  virtual void observe(const std::byte* states, float* out, int64_t n) const = 0;  // [n, observation_size]
  // One step of each. Keys of reset and step have different sites.
  virtual void step(std::byte* states, const int32_t* actions, Outcome* out, int64_t n, const RandomKey& key) const = 0;
  // The same with continuous actions [n, action_size]: -1 and 1 are the ends of each number's range, what lies beyond
  // counts as the end.
  virtual void step_continuous(std::byte* states, const float* actions, Outcome* out, int64_t n,
                               const RandomKey& key) const {
    throw std::logic_error("this environment has no continuous actions");
  }

  // One step of each but the idle ones, which stay as they are. `actions` are numbers of a continuous action, or the
  // action itself; outcomes of idle ones are left alone. False: this environment steps all or none.
  virtual bool step_awake(std::byte* /*states*/, const float* /*actions*/, const int32_t* /*idle*/, Outcome* /*out*/,
                          int64_t /*n*/, const RandomKey& /*key*/) const {
    return false;
  }

  virtual ObservationTable table() const { return {}; }
  virtual void table_rows(const std::byte* states, int32_t* out, int64_t n) const {}
  // What comes after each row of table(), for pre-training: a net may be asked to forecast it, and never sees it. The
  // same count of rows; width 0: there is nothing.
  virtual ObservationTable forecast_targets() const { return {}; }
  // What observe() would have written in the steps before an episode began, [observation_size]; zeros at first.
  virtual void observe_before(float* out) const {}

  // What the user should know since the last call: of environments that live in another process.
  virtual std::string take_note() const { return ""; }
};

}  // namespace tandem
