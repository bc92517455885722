// rl/ppo/policy_player.h -- the present policy at play: the likeliest action of each step, or the mean of a continuous
// one, without exploration and without dropout.
//
// The caller owns the environments and steps them; the player remembers what they have shown, for the window.
#pragma once

#include <ATen/core/Tensor.h>

#include "rl/environment.h"
#include "rl/ppo/policy_net.h"
#include "rl/ppo/ppo_kernels.h"

namespace tandem {

class PolicyPlayer {
 public:
  // `environments` side by side, all at the beginning of their episodes, for at most `steps` steps. Net and environment
  // must outlive it.
  PolicyPlayer(PolicyNet& net, const Environment& environment, int64_t window, int64_t environments, int64_t steps);

  // What to do in these states, the next ones of each environment: [environments, action_floats], in host memory.
  // Throws std::logic_error after `steps` of them.
  at::Tensor act(const std::byte* states);
  const at::Tensor& policy() const { return policy_; }  // [environments, outputs] of the last step, in host memory

 private:
  PolicyNet& net_;
  const Environment& environment_;
  RolloutShape shape_;
  at::Tensor own_, row_, age_, table_, before_, seen_, number_, policy_;
  int64_t step_ = 0;
};

}  // namespace tandem
