// jobs/agents_file.h -- agents.json in the folder of a set: which runs belong to which agent, and how they stand.
//
//   {"schema": 1, "strategy": "agents", "assignment": "balanced",
//    "agents": {"analysis": {"runs": ["agents/analysis"], "best": "agents/analysis"}, ...},   relative to the file
//    "jobs": [{"name", "agent", "run", "state", "step", "steps", "seconds", "score", "average_return", "rule_score",
//              "digest", "kind", "devices", "restarts"}, ...],
//    "devices": ["cpu:0", ...], "seconds": 48.1, "forecast_seconds": 50.2, "judged": true,
//    "course": [{"device": 0, "job": 2, "begin": 0.0, "end": 14.9}, ...]}
// Whoever needs the weights of an agent takes "best"; an ensemble is all of "runs". Agents that learn side by side have
// the same run, a row each in "jobs", and their weights in it under their names ("analysis.hidden1.weight").
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "jobs/job.h"
#include "jobs/schedule.h"

namespace tandem {

inline constexpr const char* kAgentsFile = "agents.json";

struct SetFacts {
  std::string strategy, assignment;
  std::vector<std::string> devices;
  double seconds = 0, forecast_seconds = kAbsent;
  bool judged = false;  // scores are of greedy episodes, not of the last ones of training
};

// `jobs` and `status` are rows (rows_of), and so are the jobs of `course`.
void write_agents_file(const std::filesystem::path& dir, const SetFacts& facts, const std::vector<SetJob>& jobs,
                       const std::vector<JobStatus>& status, const std::vector<Segment>& course);

// The object of agents.json; nothing if the folder is not that of a set, or the file is damaged.
std::optional<nlohmann::json> read_agents_file(const std::filesystem::path& dir);

struct SetRun {
  std::string agent, name;  // "analysis", "analysis-conservative"
  std::filesystem::path dir;
  bool best;
};
// The runs of a set, in the order of its jobs; empty where the folder is no set.
std::vector<SetRun> runs_of_set(const std::filesystem::path& dir);

// The job whose model serves for `agent`: the best score of those that are done; the first while none is. A score that
// `tandem eval` finds may take this one's place.
size_t best_job(const std::vector<SetJob>& jobs, const std::vector<JobStatus>& status, const std::string& agent);

// SHA-256 over "<name> <digest>\n" in the order of the names; empty while one of them has none.
std::string set_digest(std::vector<std::pair<std::string, std::string>> digests);

}  // namespace tandem
