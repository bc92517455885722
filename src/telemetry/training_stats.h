// telemetry/training_stats.h -- training_stats.json: a run in about a hundred entries, one shape for all recipes.
//
// An entry covers an epoch (or iteration) where the recipe has them, otherwise about one percent of the steps; with an
// unknown number of steps entries are merged by twos whenever there are 200. They depend on the records alone, so a
// resumed run, which replays its metrics.jsonl, ends with the entries of an uninterrupted one (times apart).
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "telemetry/step_record.h"

namespace tandem {

class TrainingStats {
 public:
  explicit TrainingStats(int64_t total_steps);
  void add(const StepRecord& record);
  // [{"iteration","step","steps","loss","learning_rate","samples","samples_per_s","seconds","skipped","metrics":{},
  //   "phases":{},"training_losses":{"total_loss"}, <group>:{}}, ...]; a metric named "group/name" goes into its group.
  nlohmann::json to_json() const;
  size_t entries() const;
  bool changed_since(size_t& seen) const;  // a new entry was begun since `seen`, which is brought up to date

 private:
  struct Mean {
    double sum = 0;
    int64_t count = 0;
    void add(double value);
    void add(const Mean& other) { sum += other.sum, count += other.count; }
    nlohmann::json json() const;
  };
  using NamedMeans =
      std::vector<std::pair<std::string, Mean>>;  // few names, always in the same order: faster than a map
  struct Entry {
    int64_t index = 0, last_step = 0, steps = 0, skipped = 0;
    Mean loss;
    double learning_rate = kAbsent, samples = 0, seconds = 0;
    NamedMeans metrics, phases;
    void add(const StepRecord& record);
    void add(const Entry& other);
  };
  struct Job {
    std::vector<Entry> entries;
  };
  static void add_named(NamedMeans& means, const std::string& name, const Mean& value, size_t hint);
  int64_t index_of(const StepRecord& record) const;
  static nlohmann::json entry_json(const Entry& entry, const std::string& job);

  int64_t steps_per_entry_;
  bool growing_;
  size_t begun_ = 0;
  std::map<std::string, Job> jobs_;
};

}  // namespace tandem
