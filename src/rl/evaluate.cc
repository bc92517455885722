#include "rl/evaluate.h"

#include <torch/torch.h>

#include <algorithm>

#include "nn/here.h"

namespace tandem {

Evaluation evaluate(const Environment& environment, const QValues& q_values, int64_t episodes, uint64_t seed) {
  at::NoGradGuard no_grad;
  at::Tensor seen = at::empty({episodes, environment.observation_size()});
  const auto policy = [&](const std::byte* states, int64_t n, uint64_t, const ChosenActions& actions) {
    environment.observe(states, seen.data_ptr<float>(), n);
    const at::Tensor best = q_values(here(seen)).argmax(1).cpu();
    std::copy_n(best.data_ptr<int64_t>(), n, actions.discrete);
  };
  return play(environment, policy, episodes, seed);
}

Evaluation evaluate_random(const Environment& environment, int64_t episodes, uint64_t seed) {
  return play(environment, random_play(environment, seed), episodes, seed);
}

}  // namespace tandem
