// apps/options/judgement.h -- what `tandem eval` says of options: figures, baselines, folds and seeds, made from what
// the workers answered. Pure functions: no run folder, no worker.
//
// A worker answers {"step", "digest", "kind", "answer": {"symbols": [json_of_play(), ...], "baselines":
// json_of_baselines(), "rate": .03, "generated": false, "description": "7 symbols, ...", "volatility": {"days": 400,
// "quoted": 100, "carried": 5, "premium": 1.1, "skew": -.1}, "in_sample_days": 0, "same_dates_days": 0, "look_ahead":
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
  std::string description;  // of the data
  // Of symbols' days: all that were traded, those with quotes of options, those that went on with the quotes before.
  int64_t priced_days = 0, quoted_days = 0, carried_days = 0;
  double premium = 0, skew = 0;  // of the others: their volatility is estimated
  // Of symbols' days: the run learned from them, or was chosen by them; it did so with other symbols of these dates.
  int64_t in_sample_days = 0, same_dates_days = 0;
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
//  "significance": words, "significant": bool, "doubts": why it is not called so whatever its interval, "trials",
//  "deflated_sharpe", "look_ahead", "volatility": "generated" | "quoted" | "estimated" | "mixed", "priced_days",
//  "quoted_days", "carried_days", "premium", "skew", "description", "in_sample_days", "same_dates_days",
//  "equity": {"dates", "curves"}}
// Throws ConfigError where there is nothing to judge, or where folds do not have the same seeds.
nlohmann::json judgement_of(std::vector<JudgedRun> runs, const JudgementPlan& plan);

nlohmann::json json_of_performance(const Performance& performance);
std::string judgement_table(const nlohmann::json& judgement);               // for people, a row for each strategy
std::vector<std::string> judgement_words(const nlohmann::json& judgement);  // what it comes to, a sentence each

// Fills and settlements of all symbols, by date within a symbol: trade_header() and a line of each.
std::string trades_csv(const std::vector<JudgedRun>& runs);

}  // namespace tandem
