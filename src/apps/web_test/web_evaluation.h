// apps/web_test/web_evaluation.h -- how good the agents of a run are: greedy episodes in their environments, on the
// scale of world/scale.h, beside random play, the rule of thumb, the solver and the oracle. No libtorch.
//
// Every policy meets the same luck. The interval is that of the mean over episodes (95 %); the scale's own errors are
// not in it. Solver and oracle are the frozen figures of the scale: they take minutes an episode to play.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rl/dqn/trained_agent.h"
#include "rl/play.h"
#include "runs/agent_runs.h"

namespace tandem {

struct EvaluationPlan {
  int64_t episodes = 1000;
  uint64_t seed = 1;
  bool members = true;  // of an ensemble too, and the ensemble itself
  int threads = 0;      // 0: one for each core
};

struct MemberEvaluation {
  TrainedAgent trained;
  Evaluation result;
};

struct AgentEvaluation {
  std::string agent;
  std::vector<MemberEvaluation> members;
  size_t chosen = 0;  // of the members: the one that stands for the agent
  std::optional<Evaluation> ensemble;
  Evaluation random, rule;
  const MemberEvaluation& own() const { return members[chosen]; }
  size_t best() const;  // the member of the highest score
};

// Throws ConfigError for an agent that has no environment, CheckpointError for weights that do not fit it.
std::vector<AgentEvaluation> evaluate_agents(const std::vector<AgentRun>& agents, const EvaluationPlan& plan);
// Episodes of a policy as JSON lines of world/product_history.h, one episode after the other.
std::string record_episodes(const std::string& agent, const Policy& policy, int64_t episodes, uint64_t seed);
Evaluation play_net(const TrainedAgent& trained, const EvaluationPlan& plan);

// {"analysis": {"score", "low", "high", "return", "error", "terms", "rule", "random", "solver", "oracle", "lines",
// ...}}
nlohmann::json agents_json(const std::vector<AgentEvaluation>& agents);
std::string agents_table(const std::vector<AgentEvaluation>& agents);

}  // namespace tandem
