// world/web_agents.h -- the six environments of web-test behind one interface: agents by number, states as plain bytes.
//
// Every agent sees 128 numbers and has ten actions. A transition is a pure function of (state, action, draws), with the
// same bits on CPU and CUDA (cuda_web_agents.h). docs/web-agent.md describes
// them; scale.h holds their reference returns.
#pragma once

#include <cstring>
#include <string>
#include <string_view>

#include "world/policies.h"

namespace tandem {

inline constexpr int32_t kWebAgents = 6;

struct WebAgentInfo {
  std::string_view name;
  std::string_view terms[kTerms];
  std::string_view actions[kCauses];  // action a is actions[a / 2], light if a is even, else as in `heavy`
  std::string_view light, heavy;
  int32_t length;  // turns of an episode; a step of the analysis agent may take several
};

inline constexpr WebAgentInfo kWebAgentTable[kWebAgents] = {
    {"requirements",
     {"scenarios", "edges", "ambiguity", "missed"},
     {"form", "flow", "permission", "data", "integration"},
     "quick",
     "thorough",
     RequirementsEnvironment::kLength},
    {"generation",
     {"quality", "maintainability", "reuse", "smells"},
     {"unit", "contract", "integration", "visual", "end-to-end"},
     "bespoke",
     "template",
     GenerationEnvironment::kLength},
    {"execution",
     {"parallel", "utilisation", "time", "failed"},
     {"smoke", "regression", "end-to-end", "performance", "quarantine"},
     "narrow",
     "wide",
     ExecutionEnvironment::kLength},
    {"observation",
     {"accuracy", "precision", "false", "missed"},
     {"lowest", "low", "middle", "high", "highest"},
     "plain",
     "intense",
     ObservationEnvironment::kLength},
    {"analysis",
     {"rca", "pattern", "accepted", "wrong"},
     {"defect", "flaky", "environment", "data", "configuration"},
     "probe",
     "conclude",
     AnalysisEnvironment::kLength},
    {"evolution",
     {"healed", "coverage", "optimised", "broken"},
     {"heal", "rewrite", "report", "retire", "steady"},
     "light",
     "verified",
     EvolutionEnvironment::kLength},
};

// -1 if there is none of that name.
constexpr int32_t web_agent_of(std::string_view name) {
  for (int32_t a = 0; a < kWebAgents; ++a)
    if (kWebAgentTable[a].name == name) return a;
  return -1;
}

union WebTestState {
  RequirementsEnvironment::State requirements;
  GenerationEnvironment::State generation;
  ExecutionEnvironment::State execution;
  ObservationEnvironment::State observation;
  AnalysisEnvironment::State analysis;
  EvolutionEnvironment::State evolution;
};
static_assert(sizeof(WebTestState) <= 1024 && sizeof(WebTestState) % 4 == 0);

// The member of the union that belongs to an environment.
TANDEM_HD RequirementsEnvironment::State& state_of(WebTestState& s, RequirementsEnvironment) { return s.requirements; }
TANDEM_HD GenerationEnvironment::State& state_of(WebTestState& s, GenerationEnvironment) { return s.generation; }
TANDEM_HD ExecutionEnvironment::State& state_of(WebTestState& s, ExecutionEnvironment) { return s.execution; }
TANDEM_HD ObservationEnvironment::State& state_of(WebTestState& s, ObservationEnvironment) { return s.observation; }
TANDEM_HD AnalysisEnvironment::State& state_of(WebTestState& s, AnalysisEnvironment) { return s.analysis; }
TANDEM_HD EvolutionEnvironment::State& state_of(WebTestState& s, EvolutionEnvironment) { return s.evolution; }

// Calls f(Environment{}) with the agent's environment; anything but 0 to 4 is the last.
template <typename F>
decltype(auto) with_web_environment(int32_t agent, F&& f) {
  switch (agent) {
    case 0:
      return f(RequirementsEnvironment{});
    case 1:
      return f(GenerationEnvironment{});
    case 2:
      return f(ExecutionEnvironment{});
    case 3:
      return f(ObservationEnvironment{});
    case 4:
      return f(AnalysisEnvironment{});
    default:
      return f(EvolutionEnvironment{});
  }
}

// One environment. The whole state is zeroed first, so that equal histories are equal bytes.
template <class Env>
TANDEM_HD void reset_one(Env environment, WebTestState& state, const RandomKey& key, int64_t index) {
  memset(&state, 0, sizeof(state));
  Draws draws = Draws::of(key, index);
  Env::reset(state_of(state, environment), draws);
}
template <class Env>
TANDEM_HD void observe_one(Env environment, const WebTestState& state, float* out) {
  Env::observe(state_of(const_cast<WebTestState&>(state), environment).seen, out);
}
template <class Env, class Numbers>
TANDEM_HD StepResult step_one(Env environment, WebTestState& state, int32_t action, Numbers draws) {
  return Env::step(state_of(state, environment), action < 0 ? 0 : action >= kActions ? kActions - 1 : action, draws);
}
template <class Env>
TANDEM_HD StepResult step_one(Env environment, WebTestState& state, int32_t action, const RandomKey& key,
                              int64_t index) {
  return step_one(environment, state, action, Draws::of(key, index));
}

// ---- n environments in host memory; environment i draws from key's indices of first + i ----
// Begins an episode in each, or, given results, in those whose last step was done.
void reset_web(int32_t agent, WebTestState* states, int64_t n, const RandomKey& key, int64_t first = 0,
               const StepResult* only_done = nullptr);
void observe_web(int32_t agent, const WebTestState* states, float* out, int64_t n);  // [n, 128]
// One step in each; actions below 0 or above 9 count as 0 and 9. Keys of resets and steps must have different
// sites.
void step_web(int32_t agent, WebTestState* states, const int32_t* actions, StepResult* results, int64_t n,
              const RandomKey& key, int64_t first = 0);
void rule_web(int32_t agent, const WebTestState* states, int32_t* actions, int64_t n);

// SHA-256 over states, observations and results of all six under a fixed policy: what scale.h belongs to.
std::string web_test_digest();

}  // namespace tandem
