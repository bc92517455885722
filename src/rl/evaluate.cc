#include "rl/evaluate.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "nn/here.h"

namespace tandem {
namespace {

// Far above the sites that a recipe numbers from 0, and below the engine's.
enum Site : uint32_t { kFirstState = 0xFE00, kLuck, kRandomPlay };

using Policy = std::function<void(const std::vector<std::byte>& states, uint64_t step, int32_t* actions)>;

Evaluation play(const Environment& environment, const Policy& policy, int64_t episodes, uint64_t seed) {
  const int64_t n = episodes;
  std::vector<std::byte> states(static_cast<size_t>(n * environment.bytes()));
  std::vector<int32_t> actions(static_cast<size_t>(n));
  std::vector<Outcome> outcomes(static_cast<size_t>(n));
  std::vector<double> returns(static_cast<size_t>(n), 0);
  std::vector<char> over(static_cast<size_t>(n), 0);
  const std::vector<std::string> names = environment.terms();
  std::vector<double> terms(names.size(), 0);
  environment.reset(states.data(), n, {seed, 0, 0, kFirstState}, nullptr);
  int64_t left = n;
  for (int64_t step = 0; left > 0 && step < environment.longest(); ++step) {
    policy(states, static_cast<uint64_t>(step), actions.data());
    environment.step(states.data(), actions.data(), outcomes.data(), n, {seed, static_cast<uint64_t>(step), 0, kLuck});
    for (int64_t i = 0; i < n; ++i) {
      if (over[i]) continue;
      returns[i] += outcomes[i].reward;
      for (size_t t = 0; t < terms.size(); ++t) terms[t] += outcomes[i].terms[t];
      if (outcomes[i].end == End::kNone) continue;
      over[i] = 1;
      --left;
    }
    // Those that are over play on, unseen: an environment may not be stepped past its end.
    environment.reset(states.data(), n, {seed, static_cast<uint64_t>(step) + 1, 0, kFirstState}, outcomes.data());
  }
  Evaluation result{.episodes = n};
  for (double r : returns) result.mean += r / static_cast<double>(n);
  double squares = 0;
  for (double r : returns) squares += (r - result.mean) * (r - result.mean);
  if (n > 1) result.error = std::sqrt(squares / static_cast<double>(n - 1) / static_cast<double>(n));
  for (size_t t = 0; t < terms.size(); ++t) result.terms.emplace_back(names[t], terms[t] / static_cast<double>(n));
  result.score = environment.score(result.mean);
  if (result.score) result.score_error = *environment.score(result.mean + result.error) - *result.score;
  return result;
}

}  // namespace

Evaluation evaluate(const Environment& environment, const QValues& q_values, int64_t episodes, uint64_t seed) {
  at::NoGradGuard no_grad;
  const int64_t width = environment.state_size();
  at::Tensor seen = at::empty({episodes, width});
  const auto policy = [&](const std::vector<std::byte>& states, uint64_t, int32_t* actions) {
    environment.observe(states.data(), seen.data_ptr<float>(), episodes);
    const at::Tensor best = q_values(here(seen)).argmax(1).cpu();
    std::copy_n(best.data_ptr<int64_t>(), episodes, actions);
  };
  return play(environment, policy, episodes, seed);
}

Evaluation evaluate_random(const Environment& environment, int64_t episodes, uint64_t seed) {
  const auto policy = [&](const std::vector<std::byte>&, uint64_t step, int32_t* actions) {
    for (int64_t i = 0; i < episodes; ++i)
      actions[i] = static_cast<int32_t>(
          random_below({seed, step, 0, kRandomPlay}, i, static_cast<uint32_t>(environment.actions())));
  };
  return play(environment, policy, episodes, seed);
}

}  // namespace tandem
