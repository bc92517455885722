#include <gtest/gtest.h>

#include "video/metrics/confusion.h"
#include "video/metrics/segments.h"

namespace tandem {

// Worked by hand; scikit-learn judges larger ones (tests/python/video_metrics_test.py).
TEST(Confusion, ScoresFollowFromItsCounts) {
  const ConfusionMatrix matrix(3, std::vector<int64_t>{8, 2, 0, 1, 4, 0, 0, 0, 0});
  const ClassificationScores scores = matrix.scores();
  EXPECT_DOUBLE_EQ(scores.accuracy, 12.0 / 15);
  EXPECT_DOUBLE_EQ(scores.classes[0].precision, 8.0 / 9);
  EXPECT_DOUBLE_EQ(scores.classes[0].recall, 0.8);
  EXPECT_DOUBLE_EQ(scores.classes[1].f1, 8.0 / 11);
  EXPECT_EQ(scores.classes[1].support, 5);
  EXPECT_DOUBLE_EQ(scores.macro_f1, (16.0 / 19 + 8.0 / 11) / 2);  // the third class does not occur
  EXPECT_DOUBLE_EQ(scores.weighted_f1, 10.0 / 15 * (16.0 / 19) + 5.0 / 15 * (8.0 / 11));
}

TEST(Confusion, AClassThatIsOnlyPredictedLowersTheMean) {
  ConfusionMatrix matrix(2);
  matrix.add(0, 0);
  matrix.add(0, 1);
  EXPECT_DOUBLE_EQ(matrix.scores().macro_f1, (2.0 / 3) / 2);
}

TEST(Confusion, NoSamplesAreZerosNotNaN) {
  const ClassificationScores scores = ConfusionMatrix(4).scores();
  EXPECT_EQ(scores.macro_f1, 0);
  EXPECT_EQ(scores.accuracy, 0);
}

TEST(Segments, AreTheLongestRunsOfALabel) {
  const std::vector<int64_t> labels{0, 0, 3, 3, 3, 0};
  EXPECT_EQ(segments_of(labels), (std::vector<ActionSegment>{{0, 0, 2}, {3, 2, 5}, {0, 5, 6}}));
  EXPECT_TRUE(segments_of({}).empty());
}

TEST(Segments, ASecondPredictionOfTheSameTrueOneIsWrong) {
  const std::vector<int64_t> truth{1, 1, 1, 1, 1, 1, 0, 0}, found{1, 1, 1, 0, 1, 1, 0, 0};
  const SegmentCounts counts = match_segments(truth, found);
  EXPECT_EQ(counts.right, 2);  // the first half of 1 (3 of 6 frames), and 0 at the end
  EXPECT_EQ(counts.wrong, 2);  // the single 0 in the middle, and the second half of 1
  EXPECT_EQ(counts.missed, 0);
  EXPECT_DOUBLE_EQ(counts.f1(), 4.0 / 6);
}

TEST(Segments, TheThresholdItselfIsEnough) {
  const std::vector<int64_t> truth{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, found{1, 1, 1, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(match_segments(truth, found, 0.3).right, 1);
  EXPECT_EQ(match_segments(truth, found, 0.31).right, 0);
}

TEST(Segments, ListsOfOtherLengthsAreRefused) {
  const std::vector<int64_t> one{1}, two{1, 1};
  EXPECT_THROW(match_segments(one, two), std::logic_error);
}

}  // namespace tandem
