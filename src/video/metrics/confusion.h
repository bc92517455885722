// video/metrics/confusion.h -- how often a class was taken for which, and what follows from it: accuracy, precision,
// recall and F1.
//
// All of it comes from whole numbers, so it is the same whoever counted which part. Definitions are scikit-learn's: a
// mean over classes is one over those that occur, as truth or as prediction; what would divide by 0 is 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem {

struct ClassScores {
  double precision = 0, recall = 0, f1 = 0;
  int64_t support = 0;  // samples of this class
};

struct ClassificationScores {
  double accuracy = 0;
  double macro_precision = 0, macro_recall = 0, macro_f1 = 0;           // every class counts the same
  double weighted_precision = 0, weighted_recall = 0, weighted_f1 = 0;  // by support
  std::vector<ClassScores> classes;
};

class ConfusionMatrix {
 public:
  explicit ConfusionMatrix(int64_t classes) : ConfusionMatrix(classes, {}) {}
  // `counts`: row by row, a row for each true class; missing ones are 0.
  ConfusionMatrix(int64_t classes, std::span<const int64_t> counts);

  void add(int64_t truth, int64_t predicted) { ++counts_.at(static_cast<size_t>(truth * classes_ + predicted)); }
  int64_t classes() const { return classes_; }
  int64_t at(int64_t truth, int64_t predicted) const {
    return counts_[static_cast<size_t>(truth * classes_ + predicted)];
  }
  ClassificationScores scores() const;

 private:
  int64_t classes_;
  std::vector<int64_t> counts_;
};

}  // namespace tandem
