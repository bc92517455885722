#include "video/ffmpeg/lost_frames.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(LostFrames, AreThosePassedSinceTheDamageInTheOrderOfDisplay) {
  LostFrames frames;
  for (const int64_t sent : {0, 40, 10, 20, 30}) frames.sent(sent);
  EXPECT_EQ(frames.before(0), 0);
  frames.damage();
  EXPECT_EQ(frames.before(30), 2);  // 10 and 20
  EXPECT_EQ(frames.at_end(), 1);
  EXPECT_EQ(frames.before(40), 0);
  EXPECT_EQ(frames.at_end(), 0);
  EXPECT_FALSE(frames.unknown());
}

TEST(LostFrames, NothingIsLostWithoutDamage) {
  LostFrames frames;
  for (const int64_t sent : {0, 10, 20}) frames.sent(sent);
  EXPECT_EQ(frames.before(20), 0);
  EXPECT_EQ(frames.at_end(), 0);
}

TEST(LostFrames, WherePacketsHaveNoFramesOfTheirOwnNobodyKnowsThePlace) {
  LostFrames fields;
  for (const int64_t sent : {0, 5, 10, 15, 20, 25}) fields.sent(sent);
  fields.before(0);
  fields.before(10);  // 5 was a field of the frame before
  EXPECT_FALSE(fields.unknown());
  fields.damage();
  EXPECT_EQ(fields.before(20), 0);
  EXPECT_TRUE(fields.unknown());
}

TEST(LostFrames, WithoutTimesNobodyKnowsThePlace) {
  LostFrames frames;
  frames.sent(LostFrames::kNoTime);
  EXPECT_EQ(frames.before(LostFrames::kNoTime), 0);
  EXPECT_FALSE(frames.unknown());
  frames.damage();
  EXPECT_TRUE(frames.unknown());
}

}  // namespace
}  // namespace tandem
