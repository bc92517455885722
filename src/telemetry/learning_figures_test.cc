#include "telemetry/learning_figures.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem {
namespace {

LearningFigures taken(const NamedValues& metrics) {
  LearningFigures figures;
  figures.take(metrics);
  return figures;
}

TEST(LearningFigures, AreTheReturnAndTheScoreOfTheOnlyAgent) {
  const auto figures = taken({{"epsilon", 0.1}, {"average_return", 187.43}, {"score", 0.734}, {"mean_q", 3}});
  EXPECT_EQ(figures.text(), "return 187.4  score 0.73");
  EXPECT_EQ(figures.returns_text(), "187.4");
  EXPECT_EQ(figures.scores_text(), "0.73");
}

TEST(LearningFigures, OfSeveralAgentsAreTheSpreadOfTheirScores) {
  const auto figures = taken({{"analysis.average_return", 3},
                              {"analysis.score", 0.31},
                              {"evolution.average_return", 90},
                              {"evolution.score", 0.72}});
  EXPECT_EQ(figures.text(), "scores 0.31 to 0.72");
  EXPECT_EQ(figures.scores_text(), "0.31-0.72");
  EXPECT_EQ(figures.agents.size(), 2u);
  EXPECT_EQ(figures.agents[1].name, "evolution");
  EXPECT_EQ(figures.agents[1].average_return, 90);
}

TEST(LearningFigures, AreNoneWhereTheRecipeHasNone) {
  EXPECT_EQ(taken({{"accuracy", 0.9}, {"high_score", 7}}).text(), "");
  EXPECT_EQ(taken({}).returns_text(), "");
}

TEST(LearningFigures, KeepTheNewestValueThatIsANumber) {
  LearningFigures figures = taken({{"average_return", 10}});
  figures.take({{"average_return", 12}});
  figures.take({{"average_return", std::nan("")}});
  EXPECT_EQ(figures.text(), "return 12");
}

TEST(LearningFigures, AreShortHoweverLargeTheyAre) {
  EXPECT_EQ(return_text(1.25e9), "1.25G");
  EXPECT_EQ(return_text(-0.0123412), "-0.01234");
  EXPECT_EQ(return_text(INFINITY), "-");
}

}  // namespace
TEST(LearningFigures, TheFirstMetricOfAValidationSetIsShown) {
  LearningFigures figures = taken({{"accuracy", 0.5}, {"validation/loss", 0.25}, {"validation/accuracy", 0.9}});
  EXPECT_EQ(figures.text(), "validation/loss 0.25");
  figures.take({{"accuracy", 0.6}});  // a step without validation: the last one stays
  EXPECT_EQ(figures.text(), "validation/loss 0.25");
}

}  // namespace tandem
