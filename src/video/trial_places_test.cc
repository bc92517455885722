#include "video/trial_places.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(TrialPlaces, NumbersOfTheirOwnOrOnThroughTheVideoLeadToOnePlace) {
  DataFindings findings;
  TrialPlaces own(false, findings), through(false, findings), from_one(false, findings);
  EXPECT_EQ(own.place(1, "a", 0, 100), 0);
  EXPECT_EQ(own.place(2, "b", 0, 50), 100);
  EXPECT_EQ(through.place(1, "a", 0, 100), 0);
  EXPECT_EQ(through.place(2, "b", 100, 50), 100);
  EXPECT_EQ(from_one.place(0, "a", 1, 100), 0);
  EXPECT_EQ(from_one.place(1, "b", 101, 50), 100);
  EXPECT_EQ(from_one.end(), 150);
  EXPECT_EQ(findings.render(), "");
}

TEST(TrialPlaces, FramesBetweenTwoTrialsAreAGap) {
  DataFindings refused, accepted;
  TrialPlaces strict(false, refused), lenient(true, accepted);
  for (TrialPlaces* places : {&strict, &lenient}) places->place(1, "a", 1, 100);
  strict.place(2, "b", 121, 50);
  ASSERT_EQ(refused.errors(), 1);
  EXPECT_NE(refused.render().find("b:2: gap: 20 frames missing before 121"), std::string::npos) << refused.render();
  EXPECT_EQ(lenient.place(2, "b", 121, 50), 120);
  EXPECT_EQ(accepted.errors(), 0);
  EXPECT_EQ(accepted.warnings(), 1);
}

TEST(TrialPlaces, NumbersThatLeadBackAreRefused) {
  DataFindings findings;
  TrialPlaces places(true, findings);
  places.place(1, "a", 0, 100);
  places.place(2, "b", 90, 50);
  EXPECT_EQ(findings.errors(), 1);
}

TEST(TrialPlaces, AMissingTrialLeavesTheNextOneWithoutAPlace) {
  DataFindings findings, numbered;
  TrialPlaces places(true, findings), through(true, numbered);
  places.place(1, "a", 0, 100);
  places.place(3, "c", 0, 100);
  ASSERT_EQ(findings.errors(), 1);
  EXPECT_NE(findings.render().find("trial 2 is not there"), std::string::npos) << findings.render();
  through.place(1, "a", 0, 100);
  EXPECT_EQ(through.place(3, "c", 200, 100), 200);  // its numbers tell
  EXPECT_EQ(numbered.errors(), 0);
}

TEST(TrialPlaces, AFirstTrialOfAnotherNumberIsNamed) {
  DataFindings findings;
  TrialPlaces places(false, findings);
  EXPECT_EQ(places.place(7, "g", 0, 100), 0);
  EXPECT_EQ(places.place(8, "h", 0, 100), 100);
  EXPECT_EQ(findings.errors(), 0);
  EXPECT_NE(findings.render().find("trials begin at 7"), std::string::npos);
}

}  // namespace
}  // namespace tandem
