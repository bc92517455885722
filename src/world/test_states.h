// world/test_states.h -- for tests only: states made to measure, and one step taken in two of them with the same
// random numbers.
#pragma once

#include "world/web_agents.h"

namespace tandem {

// A state in which nothing happens by itself: no defects, average features. The test then sets what it is about.
template <class Env>
typename Env::State quiet_state(uint64_t seed = 5) {
  typename Env::State s{};
  Draws draws = Draws::of({seed, 0, 0, 0}, 0);
  Env::reset(s, draws);
  for (int f = 0; f < kFeatures; ++f) {
    s.seen.product.complexity[f] = 0.5f;
    s.seen.product.usage[f] = 1.0f;
    s.seen.product.churn[f] = 0.0f;
    s.seen.product.coverage[f] = 0.5f;
    s.seen.product.exposure[f] = 0.0f;
    s.hidden.product.rot[f] = 1.0f;
    s.hidden.product.defects[f] = 0;
  }
  return s;
}

// Defects everywhere: some escape in the next day, almost surely.
template <class Env>
typename Env::State rotten(typename Env::State s) {
  for (int f = 0; f < kFeatures; ++f) s.hidden.product.defects[f] = 15;
  return s;
}

template <class Env>
StepResult decide(typename Env::State& s, int action, uint64_t luck = 1) {
  Draws draws = Draws::of({luck, 1, 0, 1}, 0);
  return Env::step(s, action, draws);
}

// The sum of one term over the next `steps` steps, all of them `action`.
template <class Env, class Choose>
double term_later(typename Env::State s, int term, int steps, uint64_t luck, const Choose& choose) {
  double sum = 0;
  for (int i = 0; i < steps; ++i) {
    Draws draws = Draws::of({luck, static_cast<uint64_t>(i + 2), 0, 1}, 0);
    const StepResult result = Env::step(s, choose(s), draws);
    sum += result.terms[term];
    if (result.done != 0) break;
  }
  return sum;
}

}  // namespace tandem
