// recipes/web_test_jobs.h -- how the jobs of a web-test run are made from its agents.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "recipes/web_test_settings.h"

namespace tandem {

struct AgentJob {
  std::string name, agent;                                    // "analysis-conservative", "analysis"
  int pin = -1;                                               // the device that it begins on
  std::vector<std::pair<std::string, std::string>> own = {};  // settings of this member of an ensemble: key, value
};

// One job for each agent, or three members of an ensemble that explore for half as long, as long and twice as long,
// each with a seed of its own; `balanced` is the agent as it is trained alone. Throws ConfigError.
std::vector<AgentJob> jobs_of_agents(const WebTestSettings& settings, int devices);

// Arithmetic of one step, roughly: what jobs are compared by before they are measured.
double flops_of_step(const WebAgentSettings& settings);

// What the rule of thumb scores where random play scores 0 and the solver 1.
double rule_score(const std::string& agent);

}  // namespace tandem
