// rl/gym/gym_environment.h -- a Gymnasium environment (Python) as a learner sees it.
//
// Gymnasium's environments keep their state inside, where no snapshot reaches it. So a state is how it came about: the
// seed of the episode, the actions taken, and the last observation. The live environment is a cache in another process
// (rl/gym/gym_process.h), rebuilt by replaying the actions wherever the shard may be. An environment that then
// shows another observation is not deterministic: the run says so once, or stops where equal bits are required.
#pragma once

#include <memory>

#include "rl/environment.h"
#include "rl/gym/gym_process.h"

namespace tandem {

class GymEnvironment : public Environment {
 public:
  // `longest`: an episode is truncated after so many steps; 0: the environment's own limit, or kLongest if it has none.
  // `require_exact`: refuse an environment that does not repeat itself. Throws ConfigError.
  GymEnvironment(const GymOptions& options, int64_t longest, bool require_exact);
  static constexpr int64_t kLongest = 1000;

  int64_t observation_size() const override { return process_->facts().width; }
  int64_t actions() const override { return process_->facts().actions; }
  int64_t action_size() const override { return process_->facts().action_size; }
  int64_t state_bytes() const override { return bytes_; }
  int64_t max_episode_steps() const override { return longest_; }
  void reset(std::byte* states, int64_t n, const RandomKey& key, const Outcome* only_ended) const override;
  void observe(const std::byte* states, float* out, int64_t n) const override;
  void step(std::byte* states, const int32_t* actions, Outcome* out, int64_t n, const RandomKey& key) const override;
  // Throws Error where an action is NaN.
  void step_continuous(std::byte* states, const float* actions, Outcome* out, int64_t n,
                       const RandomKey& key) const override;
  bool step_awake(std::byte* states, const float* actions, const int32_t* idle, Outcome* out, int64_t n,
                  const RandomKey& key) const override;
  std::string take_note() const override;

  // With its first state an episode is all determined: this seed, and the actions taken.
  int64_t episode_seed(const std::byte* states, int64_t i) const {
    return head(const_cast<std::byte*>(states), i).seed;
  }
  const GymOptions& options() const { return options_; }
  const std::string& python() const { return process_->python(); }  // the interpreter that serves it

 private:
  struct Head {
    uint64_t key;  // of seed and actions: what the live environment is known by
    int64_t seed, count;
  };  // the observation follows, then the actions
  Head& head(std::byte* states, int64_t i) const { return *reinterpret_cast<Head*>(states + i * bytes_); }
  float* seen(std::byte* states, int64_t i) const {
    return reinterpret_cast<float*>(states + i * bytes_ + static_cast<int64_t>(sizeof(Head)));
  }
  std::byte* history(std::byte* states, int64_t i) const {
    return states + i * bytes_ + static_cast<int64_t>(sizeof(Head)) + 4 * observation_size();
  }
  // One exchange, of slots whose action is set: at `action_of(i)` lie its bytes, as histories keep them. `idle`: null,
  // or those that are not stepped.
  template <class ActionOf>
  void step_slots(std::byte* states, const int32_t* idle, Outcome* out, int64_t n, const ActionOf& action_of) const;
  void step_discrete(std::byte* states, const int32_t* actions, const int32_t* idle, Outcome* out, int64_t n) const;
  void step_numbers(std::byte* states, const float* actions, const int32_t* idle, Outcome* out, int64_t n) const;
  void tell_differs(const Head& h) const;  // once; throws where equal bits are required

  GymOptions options_;
  bool require_exact_;
  std::unique_ptr<GymProcess> process_;
  int64_t longest_, bytes_;
  mutable bool reported_differs_ = false;
  mutable std::string note_;
};

}  // namespace tandem
