// launch/epoch_lines.h -- one line for each validation of a run that has epochs, as trainers print it:
//
//   Epoch 3/100 - Train Loss: 0.4521, Acc: 78.23% | Val Loss: 0.5234, Acc: 74.56%, F1: 0.6821
// Train: the mean over the samples since the line before, updates that were skipped left out; the weights change
// meanwhile. Val: of the first validation set, by the weights as they are then. What a run does not have is left out.
#pragma once

#include <cstdint>
#include <string>

#include "telemetry/step_record.h"

namespace tandem {

class EpochLines {
 public:
  explicit EpochLines(int64_t epochs) : epochs_(epochs) {}  // of the run; 0: not limited by epochs
  // The line, at a record that has a validation's loss; else empty.
  std::string take(const StepRecord& record);

 private:
  struct Mean {
    double sum = 0, weight = 0;
    void add(double value, double of) { sum += value * of, weight += of; }
    double value() const { return weight > 0 ? sum / weight : kAbsent; }
  };
  int64_t epochs_;
  Mean loss_, accuracy_;
};

// "macro_f1" as "F1", "accuracy" as "Acc", "loss" as "Loss"; any other by its name.
std::string metric_title(const std::string& metric);

}  // namespace tandem
