// tests/python/video_metrics_tool.cc -- video/metrics/ for a judge in Python: reads cases, prints a line of JSON for
// each.
//
// A case: classes, trials, then for each trial its length, its true labels and its predicted ones; all in one line.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "video/metrics/confusion.h"
#include "video/metrics/segments.h"

namespace {

std::vector<int64_t> read_labels(std::istream& in, int64_t count) {
  std::vector<int64_t> labels(static_cast<size_t>(count));
  for (int64_t& label : labels) in >> label;
  return labels;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    int64_t classes = 0, trials = 0;
    in >> classes >> trials;
    tandem::ConfusionMatrix matrix(classes);
    tandem::SegmentCounts segments;
    for (int64_t trial = 0; trial < trials; ++trial) {
      int64_t length = 0;
      in >> length;
      const std::vector<int64_t> truth = read_labels(in, length), predicted = read_labels(in, length);
      for (size_t i = 0; i < truth.size(); ++i) matrix.add(truth[i], predicted[i]);
      segments.add(tandem::match_segments(truth, predicted));
    }
    if (!in) return 2;
    const tandem::ClassificationScores scores = matrix.scores();
    nlohmann::json precision, recall, f1, support;
    for (const tandem::ClassScores& one : scores.classes) {
      precision.push_back(one.precision);
      recall.push_back(one.recall);
      f1.push_back(one.f1);
      support.push_back(one.support);
    }
    const nlohmann::json out{{"accuracy", scores.accuracy},
                             {"macro", {scores.macro_precision, scores.macro_recall, scores.macro_f1}},
                             {"weighted", {scores.weighted_precision, scores.weighted_recall, scores.weighted_f1}},
                             {"precision", precision},
                             {"recall", recall},
                             {"f1", f1},
                             {"support", support},
                             {"segment_f1", segments.f1()}};
    fmt::print("{}\n", out.dump());
  }
  return 0;
}
