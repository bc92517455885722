// video/class_counts.h -- how often each class occurs among clips, and the weight of each in the loss.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "video/clip_set.h"

namespace tandem {

struct ClassCounts {
  std::vector<int64_t> clips;  // of each class
  int64_t total = 0;

  double share(int32_t of_class) const;
  // total / (classes * clips of the class), as the guide has it, where `classes` counts them all; 0 for a class without
  // a clip. Of the training part alone.
  std::vector<double> weights() const;
};
ClassCounts count_classes(const ClassTable& table, std::span<const Clip> clips);

// One line a class: "Class 0 (rest        ):  45678 samples (54.32%) -> weight: 0.1828".
std::string class_table_text(const ClassTable& table, const ClassCounts& training);

// Throws ConfigError for a class that validation has and training does not. Returns a warning for each class that
// neither has: its weight is 0, and a macro mean leaves it out.
std::vector<std::string> check_class_examples(const ClassTable& table, const ClassCounts& training,
                                              const ClassCounts& validation);

}  // namespace tandem
