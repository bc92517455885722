// world/solver/solver.h -- how high a return the observations of an environment allow, found without a learning net.
//
// Two steps, each a lower bound of the best policy; the better one is the scale's 1:
//   tune     the cross-entropy method over Model<Env>'s family of policies, on simulated episodes
//   plan     at each decision: hidden states drawn from the belief, each action tried in the simulator and followed by
//            the tuned policy up to the horizon; an action replaces the tuned policy's own where it is better beyond
//            doubt (a rollout: one step of policy improvement)
// The oracle plans in the same way from the true hidden state; what is yet to come it does not know.
#pragma once

#include <functional>
#include <vector>

#include "world/solver/models.h"

namespace tandem {

struct PolicyReturn {
  double mean = 0, error = 0;  // of the return of an episode, and its standard error
  double terms[kTerms] = {};   // mean sum of each term in an episode
  std::vector<double> returns;
};

// The mean of `few` extrapolated to many episodes: `many` is another policy's return on all episodes, `few` covers the
// first of them; the paired difference has less variance than `few` alone (a control variate).
PolicyReturn carried_over(const PolicyReturn& few, const PolicyReturn& many);

struct PlanSettings {
  int samples = 48;  // hidden states for each action in the first look
  int finals = 192;  // for each action that is still in the race
  int keep = 4;      // actions in the race
  int horizon = 16;  // turns that the tuned policy plays on
  double doubt = 1;  // standard errors by which an action must beat the tuned policy's own
  bool oracle = false;
};

template <class Env>
class Solver {
 public:
  using Seen = typename Env::Seen;
  using State = typename Env::State;

  explicit Solver(uint64_t seed) : seed_(seed) {}

  PolicyReturn play_random(int episodes) const;
  PolicyReturn play_rule(int episodes) const;
  PolicyReturn play_tuned(const Params& params, int episodes) const;
  PolicyReturn play_plan(const Params& params, const PlanSettings& settings, int episodes,
                         const std::function<void(int, double)>& progress = {}) const;  // called with episode, return
  Params tune(int rounds, int population, int episodes, const std::function<void(int, double)>& progress = {}) const;

 private:
  int plan(const State& state, const typename Model<Env>::Belief& belief, const Params& params,
           const PlanSettings& settings, uint64_t decision) const;

  uint64_t seed_;
};

}  // namespace tandem
