// runs/agent_runs.h -- which weights belong to which agent of a run: the one place that knows.
//
// A run of web-test is a folder of runs; its agents.json says which is whose:
//   {"schema": 1, "strategy": "ensemble",
//    "agents": {"analysis": {"runs": ["agents/analysis-balanced", ...], "best": "agents/analysis-balanced"}, ...}}
// A folder without that file is a run of one agent itself. A later training that passed its gates
// (docs/continuous-learning.md) is named in current.json, which changes whole or not at all; the run it names stands in
// for the agent's best one.
//   {"schema": 1, "agents": {"analysis": {"run": "../web-agent-...", "replaced": "agents/analysis", "since": "..."}}}
// Paths are relative to the folder. Of one that is no UTF-8, "run_bytes" has the bytes and "run" what can be shown.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace tandem {

struct AgentRun {
  std::string agent;                        // empty: a run of a recipe that names no agent
  std::vector<std::filesystem::path> runs;  // members of an ensemble; one otherwise
  std::filesystem::path best;               // one of them
  std::filesystem::path first;              // what `best` was before anything replaced it
  bool replaced() const { return best != first; }
};

struct AgentRuns {
  std::string strategy;  // empty: a run of one agent
  std::vector<AgentRun> agents;
  std::vector<std::string> names() const;
};

// Throws ConfigError if the folder holds no agents, CheckpointError if a file in it is damaged.
AgentRuns agent_runs_of(const std::filesystem::path& folder);
// The agent of this name, or, without one, the only agent. Throws ConfigError that names those there are.
const AgentRun& find_agent(const AgentRuns& runs, const std::string& name);

// The run that an entry of current.json (`file`) names. Throws CheckpointError if it names none.
std::filesystem::path run_of_entry(const nlohmann::json& entry, const std::filesystem::path& file);

// From now on `run` stands for the agent of `folder`. Atomic; two callers wait for each other.
void make_current(const std::filesystem::path& folder, const std::string& agent, const std::filesystem::path& run);

}  // namespace tandem
