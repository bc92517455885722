#include "video/metrics/confusion.h"

#include <algorithm>

namespace tandem {
namespace {

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

}  // namespace

ConfusionMatrix::ConfusionMatrix(int64_t classes, std::span<const int64_t> counts)
    : classes_(classes), counts_(static_cast<size_t>(classes * classes)) {
  std::copy_n(counts.begin(), std::min(counts.size(), counts_.size()), counts_.begin());
}

ClassificationScores ConfusionMatrix::scores() const {
  ClassificationScores scores;
  int64_t all = 0, right = 0, occurring = 0;
  for (int64_t c = 0; c < classes_; ++c) {
    int64_t truth = 0, predicted = 0;
    for (int64_t other = 0; other < classes_; ++other) truth += at(c, other), predicted += at(other, c);
    all += truth;
    right += at(c, c);
    occurring += truth + predicted > 0 ? 1 : 0;
    const auto hits = static_cast<double>(at(c, c));
    scores.classes.push_back({.precision = ratio(hits, static_cast<double>(predicted)),
                              .recall = ratio(hits, static_cast<double>(truth)),
                              .f1 = ratio(2 * hits, static_cast<double>(truth + predicted)),
                              .support = truth});
  }
  scores.accuracy = ratio(static_cast<double>(right), static_cast<double>(all));
  for (const ClassScores& one : scores.classes) {
    const double share = ratio(1, static_cast<double>(occurring));  // a class that does not occur adds 0
    const double weight = ratio(static_cast<double>(one.support), static_cast<double>(all));
    scores.macro_precision += share * one.precision;
    scores.macro_recall += share * one.recall;
    scores.macro_f1 += share * one.f1;
    scores.weighted_precision += weight * one.precision;
    scores.weighted_recall += weight * one.recall;
    scores.weighted_f1 += weight * one.f1;
  }
  return scores;
}

}  // namespace tandem
