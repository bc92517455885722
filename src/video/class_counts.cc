#include "video/class_counts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"

namespace tandem {

double ClassCounts::share(int32_t of_class) const {
  return total > 0 ? static_cast<double>(clips[static_cast<size_t>(of_class)]) / static_cast<double>(total) : 0;
}

std::vector<double> ClassCounts::weights() const {
  std::vector<double> weights;
  for (const int64_t count : clips)
    weights.push_back(
        count > 0 ? static_cast<double>(total) / (static_cast<double>(clips.size()) * static_cast<double>(count)) : 0);
  return weights;
}

ClassCounts count_classes(const ClassTable& table, std::span<const Clip> clips) {
  ClassCounts counts;
  counts.clips.assign(static_cast<size_t>(table.size()), 0);
  for (const Clip& clip : clips) ++counts.clips[static_cast<size_t>(clip.label)];
  counts.total = static_cast<int64_t>(clips.size());
  return counts;
}

std::string class_table_text(const ClassTable& table, const ClassCounts& training) {
  size_t width = 0;
  for (const std::string& name : table.names()) width = std::max(width, name.size());
  const std::vector<double> weights = training.weights();
  std::string out;
  for (int32_t i = 0; i < table.size(); ++i) {
    const size_t at = static_cast<size_t>(i);
    out += fmt::format("Class {} ({:<{}}): {:>8} samples ({:5.2f}%) -> weight: {:.4f}\n", i, table.names()[at], width,
                       training.clips[at], 100 * training.share(i), weights[at]);
  }
  return out;
}

std::vector<std::string> check_class_examples(const ClassTable& table, const ClassCounts& training,
                                              const ClassCounts& validation) {
  std::vector<std::string> warnings;
  std::string only_judged;
  for (size_t i = 0; i < table.names().size(); ++i) {
    if (training.clips[i] > 0 && validation.clips[i] == 0)
      warnings.push_back(
          fmt::format("no clip of class {} ({}) judges: its F1 is 0 where it is predicted, and else left out", i,
                      table.names()[i]));
    if (training.clips[i] > 0) continue;
    if (validation.clips[i] > 0)
      only_judged += (only_judged.empty() ? "" : ", ") + table.names()[i];
    else
      warnings.push_back(fmt::format("no clip of class {} ({}): its weight is 0, and a macro mean leaves it out", i,
                                     table.names()[i]));
  }
  if (!only_judged.empty())
    throw ConfigError(fmt::format("no example in training of: {}", only_judged),
                      "validation has some, and a model can't know what it never saw",
                      "take another seed of the split, split by trial, or bring more videos of it");
  return warnings;
}

}  // namespace tandem
