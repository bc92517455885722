#include "recipes/web_environment.h"

#include <algorithm>

#include "world/scale.h"

namespace tandem {
namespace {

WebTestState* of(std::byte* states) { return reinterpret_cast<WebTestState*>(states); }

}  // namespace

std::vector<std::string> WebEnvironment::terms() const {
  return {std::begin(kWebAgentTable[agent_].terms), std::end(kWebAgentTable[agent_].terms)};
}

std::optional<double> WebEnvironment::score(double mean_return) const {
  if (kWebTestDigest == "none") return std::nullopt;
  return kWebScale[agent_].score(mean_return);
}

void WebEnvironment::reset(std::byte* states, int64_t n, const RandomKey& key, const Outcome* only_ended) const {
  with_web_environment(agent_, [&](auto rules) {
    for (int64_t i = 0; i < n; ++i)
      if (!only_ended || only_ended[i].end != End::kNone) reset_one(rules, of(states)[i], key, i);
  });
}

void WebEnvironment::observe(const std::byte* states, float* out, int64_t n) const {
  observe_web(agent_, reinterpret_cast<const WebTestState*>(states), out, n);
}

void WebEnvironment::step(std::byte* states, const int32_t* actions, Outcome* out, int64_t n,
                          const RandomKey& key) const {
  static_assert(kTerms <= Outcome::kMostTerms);
  with_web_environment(agent_, [&](auto rules) {
    for (int64_t i = 0; i < n; ++i) {
      const StepResult result = step_one(rules, of(states)[i], actions[i], key, i);
      out[i] = {.reward = result.reward, .end = result.done ? End::kTerminated : End::kNone};
      std::copy_n(result.terms, kTerms, out[i].terms);
    }
  });
}

}  // namespace tandem
