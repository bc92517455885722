// telemetry/step_record.h -- the record of one training step.
//
// Filled by the train loop (rank 0's numbers are everybody's, already combined), written to metrics.jsonl, to the
// TensorBoard file and to the progress bar, read back by the report and by `tandem runs`. A number that does not exist
// is NaN and is written as null: never as 0, which would be a claim.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

inline constexpr double kAbsent = std::numeric_limits<double>::quiet_NaN();

using NamedValues = std::vector<std::pair<std::string, double>>;

struct StepRecord {
  int64_t step = 0;  // counted from 1; skipped updates count too
  double loss = kAbsent;
  double seconds = 0;  // wall time of this step
  double samples = 0;  // what the step consumed, in the run's unit (samples, frames, tokens, games)
  double learning_rate = kAbsent;
  double grad_norm = kAbsent;
  double loss_scale = 1;
  bool skipped = false;       // the update was dropped (overflow or NaN)
  int64_t epoch = -1;         // epoch or iteration, counted from 0; -1: the recipe has none
  NamedValues metrics;        // accuracy, reward, ...
  NamedValues phase_seconds;  // time per phase, in the order of the phases
  std::string job;            // which model of the run; empty where a run trains one
  double time = kAbsent;      // Unix seconds; Telemetry fills it in if absent
};

}  // namespace tandem
