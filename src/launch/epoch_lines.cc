#include "launch/epoch_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

double metric_of(const NamedValues& metrics, const std::string& name) {
  const auto at = std::ranges::find(metrics, name, &NamedValues::value_type::first);
  return at == metrics.end() ? kAbsent : at->second;
}

// The set of the first metric that ends in "/loss".
std::string set_of(const NamedValues& metrics) {
  for (const auto& metric : metrics)
    if (metric.first.ends_with("/loss")) return metric.first.substr(0, metric.first.size() - 5);
  return "";
}

void add_accuracy(std::string& line, double accuracy) {
  if (std::isfinite(accuracy)) line += fmt::format(", Acc: {:.2f}%", 100 * accuracy);
}

}  // namespace

std::string EpochLines::take(const StepRecord& record) {
  if (!record.skipped && std::isfinite(record.loss)) {
    loss_.add(record.loss, record.samples);
    const double accuracy = metric_of(record.metrics, "accuracy");
    if (std::isfinite(accuracy)) accuracy_.add(accuracy, record.samples);
  }
  const std::string set = set_of(record.metrics);
  if (set.empty() || record.epoch < 0) return "";
  std::string line = fmt::format("Epoch {}{} - Train Loss: {:.4f}", record.epoch + 1,
                                 epochs_ > 0 ? fmt::format("/{}", epochs_) : "", loss_.value());
  add_accuracy(line, accuracy_.value());
  line += fmt::format(" | Val Loss: {:.4f}", metric_of(record.metrics, set + "/loss"));
  add_accuracy(line, metric_of(record.metrics, set + "/accuracy"));
  if (const double f1 = metric_of(record.metrics, set + "/macro_f1"); std::isfinite(f1))
    line += fmt::format(", F1: {:.4f}", f1);
  loss_ = accuracy_ = {};
  return line;
}

std::string metric_title(const std::string& metric) {
  const std::string name = metric.substr(metric.rfind('/') + 1);
  return name == "macro_f1" ? "F1" : name == "accuracy" ? "Acc" : name == "loss" ? "Loss" : name;
}

}  // namespace tandem
