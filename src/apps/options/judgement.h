// apps/options/judgement.h -- what `tandem eval` says of options: figures, baselines, folds and seeds, made from what
// the workers answered. Pure functions: no run folder, no worker.
//
// A worker answers {"step", "digest", "kind", "answer": {"symbols": [json_of_play(), ...], "baselines":
// json_of_baselines(), "rate": .03, "generated": false, "in_sample_days": 0, "look_ahead":
// json_of_look_ahead()}}.
//
// Of several seeds the agent's equity is their sum: the capital is split over them, none is picked. Of several folds it
// is one test period after the other.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "market/baselines.h"

namespace tandem {

struct JudgedRun {
  int64_t fold = 1, seed = 1, step = 0;
  std::string run, digest;
  std::vector<SymbolPlay> symbols;
  Baselines baselines;
  double rate = 0;
  bool generated = false;
  int64_t in_sample_days = 0;  // of symbols' days: the run learned from them, or was chosen by them
  nlohmann::json look_ahead;
};
// Throws Error where the answer lacks something.
JudgedRun judged_run(const nlohmann::json& answered, int64_t fold, int64_t seed, const std::string& run);

// `trials`: strategies that were tried before this one was chosen, the seeds of the set not counted.
struct JudgementPlan {
  int64_t trials = 1;
  uint64_t seed = 1;  // of the bootstrap
};

// {"agent": figures, "seeds": [...], "over_seeds", "baselines": [...], "folds": [...], "random_beaten",
//  "significance": words, "significant": bool, "trials", "deflated_sharpe", "look_ahead", "equity": {"dates",
//  "curves"}}
// Throws ConfigError where there is nothing to judge, or where folds do not have the same seeds.
nlohmann::json judgement_of(std::vector<JudgedRun> runs, const JudgementPlan& plan);

nlohmann::json json_of_performance(const Performance& performance);
std::string judgement_table(const nlohmann::json& judgement);               // for people, a row for each strategy
std::vector<std::string> judgement_words(const nlohmann::json& judgement);  // what it comes to, a sentence each

// Fills and settlements of all symbols, by date within a symbol: trade_header() and a line of each.
std::string trades_csv(const std::vector<JudgedRun>& runs);

}  // namespace tandem
