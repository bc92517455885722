// apps/web_test/gate.h -- may a newly trained agent take the place of the old one? Not worse on the old, nor on the
// new.
//
//   old        greedy score in the simulator, both on the same episodes; only for agents that learned from it
//   first      the same against the run's first model: small losses must not add up from day to day. Without the
//              simulator: by `old data`
//   new        what each would earn on the episodes of the new experience that were held out (rl/off_policy.h)
//   old data   the same on the held-out episodes of what the agent learned from before
// A line has three outcomes: passed, worse, not judged. The last says why and what to do, and `new` refuses then too.
// A loss counts where its whole 95 % interval is above no_loss (less is nothing to refuse a day's work for; `first`
// sees to it that such losses do not add up), or where it is above most_loss itself. Scores have a scale of their own;
// the unit of a value is the standard deviation of the episodes' own returns.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/web_test/web_evaluation.h"
#include "recipes/gate_rules.h"
#include "rl/off_policy.h"

namespace tandem {

struct GateLine {
  std::string name;     // "old", "first", "new", "old data"
  std::string measure;  // "score", "value"
  double before = 0, after = 0;
  double change = 0, low = 0, high = 0;  // after - before, and its interval
  bool judged = true, passed = false;
  std::string note;
  GateRule rule = GateRule::kRefuse;
  int64_t episodes = 0, held_out = 0;  // judged by; held out in all, where a part of them judged
  double known = 1;  // of a value: share of the new model's decisions whose action the episodes have often enough
  bool refuses() const { return !passed && rule == GateRule::kRefuse; }
  bool worse() const { return judged && !passed; }
};

struct GateResult {
  std::string agent;
  std::vector<GateLine> lines;
  bool passed() const;  // no line refuses
  bool worse() const;   // a line refuses that could judge
};

struct GateLimits {
  double no_loss, most_loss;
};
inline constexpr GateLimits kScoreLimits{0.01, 0.05};
inline constexpr GateLimits kValueLimits{0.05, 0.5};  // of the unit; wider, for data are few and noisy
inline constexpr double kLeastKnown = 0.5;            // below it the episodes can't tell

// By mean and error of paired differences.
GateLine compare_scores(std::string name, const std::vector<double>& before, const std::vector<double>& after);
// On the same episodes. Not judged, and not passed, where these are too few or hardly have the actions of `after`.
GateLine compare_on_episodes(std::string name, const LoggedEpisodes& episodes, double gamma, const QFunction& before,
                             const QFunction& after);

struct GateInput {
  const TrainedAgent &before, &after;
  const TrainedAgent* first = nullptr;      // where something replaced it before
  const LoggedEpisodes* fresh = nullptr;    // held out of the new experience; null: there is none, or none held out
  const LoggedEpisodes* earlier = nullptr;  // of what was learned from before
  int64_t learned = 0;                      // episodes of `fresh` that were left out: a training learned from them
  bool simulator = true;                    // the agent learned from it
  GateRules rules = {};
};
// What is said where so few episodes are held out.
std::string too_few_episodes(int64_t held_out);
GateResult judge(const GateInput& input, const EvaluationPlan& plan);

nlohmann::json gate_json(const GateResult& result);
std::string gate_table(const std::vector<GateResult>& results);

}  // namespace tandem
