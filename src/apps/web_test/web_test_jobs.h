// apps/web_test/web_test_jobs.h -- how the jobs of a web-test run are made from its agents.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "apps/web_test/web_test_settings.h"
#include "config/devices.h"

namespace tandem {

struct AgentJob {
  std::vector<std::string> agents;                            // one, or several side by side
  std::string kind = {};                                      // of an ensemble's members: "conservative"; else empty
  int pin = -1;                                               // the device that it begins on
  std::vector<std::pair<std::string, std::string>> own = {};  // settings of this member of an ensemble: key, value

  std::string name() const;                                 // "analysis", "analysis-conservative", "requirements+5"
  std::string member_name(const std::string& agent) const;  // of one of its agents: the name that it has alone
};

// One job for each agent, or three members of an ensemble that explore for half as long, as long and twice as long,
// each with a seed of its own; `balanced` is the agent as it is trained alone. Throws ConfigError.
std::vector<AgentJob> jobs_of_agents(const WebTestSettings& settings, int devices);

// In how many runs agents of equal settings learn side by side where that is not decided by forecast
// (apps/web_test/web_test_costs.h): on cores all in one if it is asked for; where GPUs are named several times, one run
// for each. 0: each has a run of its own. Throws ConfigError where it is asked for and can't be.
int batched_runs(const WebTestSettings& settings, const std::vector<DeviceSpec>& devices);
// `jobs`, of one kind and equal settings, dealt out to at most so many.
std::vector<AgentJob> side_by_side(const std::vector<AgentJob>& jobs, int runs);

// Arithmetic of one step, roughly: what jobs are compared by before they are measured.
double flops_of_step(const WebAgentSettings& settings, bool on_gpus);

// What the rule of thumb scores where random play scores 0 and the solver 1.
double rule_score(const std::string& agent);

}  // namespace tandem
