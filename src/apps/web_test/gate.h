// apps/web_test/gate.h -- may a newly trained agent take the place of the old one? Not worse on the old, nor on the
// new.
//
//   old        greedy score in the simulator, both on the same episodes
//   first      the same against the run's first model: small losses must not add up from day to day
//   new        on the part of the new experience that was kept apart: how far what came (the next kGateHorizon rewards,
//              discounted) is from what Q(s, a) foretells, by the straight line that suits each model best
//   old data   the same on what the old model's own experience had kept apart, where the files are still there
// A loss counts where its whole 95 % interval is above no_loss (less is nothing to refuse a day's work for; `first`
// sees to it that such losses do not add up), or where it is above most_loss itself.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/web_test/web_evaluation.h"
#include "rl/replay/experience.h"

namespace tandem {

struct GateLine {
  std::string name;     // "old", "first", "new", "old data"
  std::string measure;  // "score", "error"
  double before = 0, after = 0;
  double change = 0, low = 0, high = 0;  // after - before, and its interval
  bool judged = true, passed = false;
  std::string note;
};

struct GateResult {
  std::string agent;
  std::vector<GateLine> lines;
  bool passed() const;
};

struct GateLimits {
  double no_loss, most_loss;
};
inline constexpr GateLimits kScoreLimits{0.01, 0.05};
inline constexpr GateLimits kErrorLimits{0.01, 0.25};  // shares of the old error; wider, for data are few and noisy
inline constexpr int64_t kFewestSegments = 5;          // held out, to be judged by
inline constexpr size_t kGateHorizon = 8;

// By mean and error of paired differences. A score should be high, an "error" low.
GateLine compare(std::string name, std::string measure, const std::vector<double>& before,
                 const std::vector<double>& after);

// Mean error of each segment that was kept apart. The target is the data's own, the same for every model, and a model's
// scale does not matter: a TD error, whose target is the model's own, is the smaller the less a model has learned.
std::vector<double> held_out_errors(const TrainedAgent& trained, const Experience& experience);

struct GateInput {
  const TrainedAgent &before, &after;
  const TrainedAgent* first = nullptr;         // where something replaced it before
  const Experience* fresh = nullptr;           // null: nothing new was learned from
  const Experience* old_experience = nullptr;  // of `before`
};
GateResult judge(const GateInput& input, const EvaluationPlan& plan);

nlohmann::json gate_json(const GateResult& result);
std::string gate_table(const std::vector<GateResult>& results);

}  // namespace tandem
