#include "launch/epoch_lines.h"

#include <gtest/gtest.h>

namespace tandem {

TEST(EpochLines, OneForEachValidationWithTheMeanSinceTheLastOne) {
  EpochLines lines(100);
  StepRecord record{.step = 1, .loss = 0.5, .samples = 10, .epoch = 0, .metrics = {{"accuracy", 0.5}}};
  EXPECT_EQ(lines.take(record), "");
  record.loss = 0.2;
  record.samples = 20;
  record.metrics = {
      {"accuracy", 0.8}, {"validation/macro_f1", 0.6821}, {"validation/loss", 0.5234}, {"validation/accuracy", 0.7456}};
  EXPECT_EQ(lines.take(record),
            "Epoch 1/100 - Train Loss: 0.3000, Acc: 70.00% | Val Loss: 0.5234, Acc: 74.56%, F1: 0.6821");
  record.epoch = 1;
  record.metrics = {{"validation/loss", 0.4}};
  EXPECT_EQ(lines.take(record), "Epoch 2/100 - Train Loss: 0.2000 | Val Loss: 0.4000");
}

TEST(EpochLines, ASkippedUpdateIsNoPartOfTheMean) {
  EpochLines lines(0);
  lines.take({.step = 1, .loss = 1, .samples = 8, .epoch = 0});
  StepRecord record{.step = 2, .loss = 1000, .samples = 8, .skipped = true, .epoch = 0, .metrics = {{"test/loss", 2}}};
  EXPECT_EQ(lines.take(record), "Epoch 1 - Train Loss: 1.0000 | Val Loss: 2.0000");
}

TEST(EpochLines, ARunWithoutEpochsHasNone) {
  EpochLines lines(0);
  EXPECT_EQ(lines.take({.step = 1, .loss = 1, .samples = 8, .metrics = {{"validation/loss", 2}}}), "");
}

TEST(EpochLines, TitlesOfMetrics) {
  EXPECT_EQ(metric_title("validation/macro_f1"), "F1");
  EXPECT_EQ(metric_title("accuracy"), "Acc");
  EXPECT_EQ(metric_title("validation/segment_f1"), "segment_f1");
}

}  // namespace tandem
