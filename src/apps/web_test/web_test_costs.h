// apps/web_test/web_test_costs.h -- what agents of web-test cost on GPUs, from their settings and what is known of the
// GPUs: the question that jobs/set_plan.h answers.
#pragma once

#include <string>
#include <vector>

#include "apps/web_test/web_test_jobs.h"
#include "forecast/calibration.h"
#include "jobs/job_set.h"

namespace tandem {

// By the settings alone: weights, optimizer, target network and replay of one agent.
JobShape shape_of_agent(const WebAgentSettings& settings);

// Of a step of one agent on a GPU.
RunCost agent_cost(const WebAgentSettings& settings, const DeviceSpec& gpu, const SetKnown& known);

// The GPUs of a set; `settings` are those of the set.
std::vector<SetDevice> set_devices(const std::vector<DeviceSpec>& gpus, const WebTestSettings& settings,
                                   const SetKnown& known);

// Throws ConfigError where an agent, or a run that is there, fits on none of the GPUs that it may begin on.
void refuse_what_fits_nowhere(const SetQuestion& question, double memory_fraction);

// "room in one run for: cuda:0 3 of 6 agents (7.1 GB)": where memory keeps agents that are alike apart; else empty.
std::string memory_words(const SetQuestion& question);

// One agent, or a run that is there, with `steps` still to make. Who may share a run with it (`alike`) is left open.
SetUnit unit_of(const AgentJob& job, const WebAgentSettings& settings, double steps,
                const std::vector<DeviceSpec>& gpus, const SetKnown& known);

// Whether agents of these settings may share a run at all. Throws ConfigError where that is asked for and can't be.
bool can_share(const WebTestSettings& settings);

// Where grouping is by forecast: on GPUs, each named once, unless each agent is to run on all of them (ddp).
bool plans_by_forecast(const WebTestSettings& settings, const std::vector<DeviceSpec>& devices);

// Whether `plan` measured all these agents on all these GPUs.
bool all_tried_on(const std::vector<DeviceSpec>& gpus, const SetKnown& known, const std::vector<std::string>& agents);

// "trials of `plan`", "earlier runs", "the GPUs' data sheets": what the costs of these GPUs come from; and those that
// are in no book.
std::string source_of_costs(const std::vector<DeviceSpec>& gpus, const SetKnown& known);

}  // namespace tandem
