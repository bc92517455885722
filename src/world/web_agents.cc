#include "world/web_agents.h"

#include <span>
#include <vector>

#include "base/sha256.h"

namespace tandem {

void reset_web(int32_t agent, WebTestState* states, int64_t n, const RandomKey& key, int64_t first,
               const StepResult* only_done) {
  with_web_environment(agent, [&](auto environment) {
    for (int64_t i = 0; i < n; ++i)
      if (only_done == nullptr || only_done[i].done != 0) reset_one(environment, states[i], key, first + i);
  });
}

void observe_web(int32_t agent, const WebTestState* states, float* out, int64_t n) {
  with_web_environment(agent, [&](auto environment) {
    for (int64_t i = 0; i < n; ++i) observe_one(environment, states[i], out + kObservation * i);
  });
}

void step_web(int32_t agent, WebTestState* states, const int32_t* actions, StepResult* results, int64_t n,
              const RandomKey& key, int64_t first) {
  with_web_environment(agent, [&](auto environment) {
    for (int64_t i = 0; i < n; ++i) results[i] = step_one(environment, states[i], actions[i], key, first + i);
  });
}

void rule_web(int32_t agent, const WebTestState* states, int32_t* actions, int64_t n) {
  with_web_environment(agent, [&](auto environment) {
    for (int64_t i = 0; i < n; ++i)
      actions[i] = rule_of_thumb(state_of(const_cast<WebTestState&>(states[i]), environment).seen);
  });
}

std::string web_test_digest() {
  constexpr int64_t kEnvironments = 24;
  constexpr uint64_t kSteps = 200;
  enum Site : uint32_t { kFirst, kStep, kPlay };
  Sha256 sum;
  std::vector<WebTestState> states(kEnvironments);
  std::vector<int32_t> actions(kEnvironments);
  std::vector<StepResult> results(kEnvironments);
  std::vector<float> seen(kEnvironments * kObservation);
  for (int32_t agent = 0; agent < kWebAgents; ++agent) {
    const uint64_t seed = 20251027 + static_cast<uint64_t>(agent);
    reset_web(agent, states.data(), kEnvironments, {seed, 0, 0, kFirst});
    for (uint64_t step = 0; step < kSteps; ++step) {
      observe_web(agent, states.data(), seen.data(), kEnvironments);
      rule_web(agent, states.data(), actions.data(), kEnvironments);
      for (int64_t i = 0; i < kEnvironments; ++i) {  // half by rule, half at random
        Draws draws = Draws::of({seed, step, 0, kPlay}, i);
        if (draws.chance(0.5f)) actions[i] = random_policy(draws);
      }
      step_web(agent, states.data(), actions.data(), results.data(), kEnvironments, {seed, step, 0, kStep});
      sum.update(std::as_bytes(std::span(seen)));
      sum.update(std::as_bytes(std::span(states)));
      sum.update(std::as_bytes(std::span(results)));
      reset_web(agent, states.data(), kEnvironments, {seed, step + 1, 0, kFirst}, 0, results.data());
    }
  }
  return sum.hex();
}

}  // namespace tandem
