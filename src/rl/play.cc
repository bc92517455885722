#include "rl/play.h"

#include <cmath>

namespace tandem {
namespace {

// Far above the sites that a recipe numbers from 0, and below the engine's.
enum Site : uint32_t { kFirstState = 0xFE00, kLuck, kRandomPlay };

}  // namespace

Evaluation play(const Environment& environment, const Policy& policy, int64_t episodes, uint64_t seed,
                const Watcher& watcher) {
  const int64_t n = episodes;
  std::vector<std::byte> states(static_cast<size_t>(n * environment.state_bytes()));
  const int64_t numbers = environment.action_size();  // 0: actions are discrete
  std::vector<int32_t> chosen(static_cast<size_t>(n));
  std::vector<float> continuous(static_cast<size_t>(n * numbers));
  const ChosenActions actions{chosen.data(), numbers > 0 ? continuous.data() : nullptr};
  std::vector<Outcome> outcomes(static_cast<size_t>(n));
  Evaluation result{.episodes = n, .returns = std::vector<double>(static_cast<size_t>(n), 0)};
  std::vector<double>& returns = result.returns;
  std::vector<char> over(static_cast<size_t>(n), 0);
  const std::vector<std::string> names = environment.terms();
  std::vector<double> terms(names.size(), 0);
  environment.reset(states.data(), n, {seed, 0, 0, kFirstState}, nullptr);
  const size_t width = static_cast<size_t>(environment.observation_size());
  std::vector<float> before(watcher ? static_cast<size_t>(n) * width : 0), after(before.size());
  int64_t left = n;
  for (int64_t step = 0; left > 0 && step < environment.max_episode_steps(); ++step) {
    if (watcher) environment.observe(states.data(), before.data(), n);
    policy(states.data(), n, static_cast<uint64_t>(step), actions);
    const RandomKey luck{seed, static_cast<uint64_t>(step), 0, kLuck};
    if (numbers > 0)
      environment.step_continuous(states.data(), actions.continuous, outcomes.data(), n, luck);
    else
      environment.step(states.data(), actions.discrete, outcomes.data(), n, luck);
    if (watcher) environment.observe(states.data(), after.data(), n);
    for (int64_t i = 0; i < n; ++i) {
      if (over[i]) continue;
      if (watcher)
        watcher(i, before.data() + static_cast<size_t>(i) * width,
                {chosen[i], {continuous.data() + i * numbers, static_cast<size_t>(numbers)}}, outcomes[i],
                after.data() + static_cast<size_t>(i) * width);
      returns[i] += outcomes[i].reward;
      for (size_t t = 0; t < terms.size(); ++t) terms[t] += outcomes[i].terms[t];
      if (outcomes[i].end == End::kNone) continue;
      over[i] = 1;
      --left;
    }
    // Finished ones start another episode, which is not counted: an environment may not be stepped past its end.
    environment.reset(states.data(), n, {seed, static_cast<uint64_t>(step) + 1, 0, kFirstState}, outcomes.data());
  }
  for (double r : returns) result.mean += r / static_cast<double>(n);
  double squares = 0;
  for (double r : returns) squares += (r - result.mean) * (r - result.mean);
  if (n > 1) result.error = std::sqrt(squares / static_cast<double>(n - 1) / static_cast<double>(n));
  for (size_t t = 0; t < terms.size(); ++t) result.terms.emplace_back(names[t], terms[t] / static_cast<double>(n));
  result.score = environment.score(result.mean);
  if (result.score) result.score_error = *environment.score(result.mean + result.error) - *result.score;
  return result;
}

Policy random_play(const Environment& environment, uint64_t seed) {
  const auto count = static_cast<uint32_t>(environment.actions());
  const int64_t numbers = environment.action_size();
  return [count, numbers, seed](const std::byte*, int64_t n, uint64_t step, const ChosenActions& actions) {
    const RandomKey key{seed, step, 0, kRandomPlay};
    for (int64_t i = 0; i < n * numbers; ++i)
      actions.continuous[i] = static_cast<float>(2 * random_uniform(key, static_cast<uint64_t>(i)) - 1);
    if (numbers > 0) return;
    for (int64_t i = 0; i < n; ++i) actions.discrete[i] = static_cast<int32_t>(random_below(key, i, count));
  };
}

}  // namespace tandem
