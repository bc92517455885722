#include "video/pose.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tandem {
namespace {

constexpr std::array<const char*, 6> kParts = {"mouth",     "L_frontpaw", "R_frontpaw",
                                               "L_hindpaw", "R_hindpaw",  "tail_base"};
// A house: mouth on top, paws on a square of side 2, tail below.
constexpr std::array<std::array<double, 2>, 6> kHouse = {{{1, 3}, {0, 2}, {2, 2}, {0, 0}, {2, 0}, {1, -1}}};

std::string header() {
  std::string scorer = "scorer", parts = "bodyparts", coords = "coords";
  for (const char* part : kParts)
    for (const char* coord : {"x", "y", "likelihood"})
      scorer += ",net", parts += fmt::format(",{}", part), coords += fmt::format(",{}", coord);
  return scorer + "\n" + parts + "\n" + coords + "\n";
}
std::string row(int frame, double scale, double mouth_likelihood = 1) {
  std::string text = fmt::format("{}", frame);
  for (size_t part = 0; part < kParts.size(); ++part)
    text +=
        fmt::format(",{},{},{}", scale * kHouse[part][0], scale * kHouse[part][1], part == 0 ? mouth_likelihood : 1.0);
  return text + "\n";
}

TEST(Pose, LengthsAndAnglesOfAKnownShape) {
  DataFindings findings;
  const std::vector<float> pose = read_pose(header() + row(0, 100), "p.csv", findings);
  ASSERT_EQ(pose.size(), 18U) << findings.render();
  const double near = 100 * std::sqrt(2.0), side = 200, quarter = std::acos(-1.0) / 2;
  for (const int i : {0, 1, 2, 3}) EXPECT_NEAR(pose[static_cast<size_t>(i)], near, 1e-2) << i;
  for (const int i : {4, 5, 6, 7}) EXPECT_NEAR(pose[static_cast<size_t>(i)], side, 1e-2) << i;
  EXPECT_NEAR(pose[8], quarter, 2e-3);       // at the mouth
  EXPECT_NEAR(pose[9], quarter, 2e-3);       // at the tail
  EXPECT_NEAR(pose[10], quarter / 2, 2e-3);  // mouth, left front paw, right front paw
  EXPECT_NEAR(pose[11], quarter, 2e-3);      // a corner of the square
}

TEST(Pose, APartThatIsNotSeenKeepsItsPlace) {
  DataFindings findings;
  const std::vector<float> pose =
      read_pose(header() + row(0, 100, 0.1) + row(1, 100) + row(2, 100, 0.2), "p.csv", findings);
  ASSERT_EQ(pose.size(), 54U) << findings.render();
  EXPECT_EQ(pose[0], pose[18]);
  EXPECT_EQ(pose[36], pose[18]);
}

TEST(Pose, BadFilesAreRefusedByLine) {
  const std::string good = header() + row(0, 1) + row(1, 1);
  const std::pair<std::string, const char*> cases[] = {
      {"", "three rows of header"},
      {"a,b\n1,2\n", "where DeepLabCut writes \"scorer\""},
      {header().replace(header().find("mouth"), 5, "nose_"), "the header lacks mouth x"},
      {header() + row(0, 1) + row(2, 1), "frame \"2\" where 1 comes next"},
      {header() + "0,1,2\n", "3 fields where the header has 19"},
      {header() + row(0, 1, 0.1), "mouth is never seen"}};
  for (const auto& [text, words] : cases) {
    DataFindings findings;
    read_pose(text, "p.csv", findings);
    EXPECT_EQ(findings.errors(), 1) << words;
    EXPECT_NE(findings.render().find(words), std::string::npos) << findings.render();
  }
}

TEST(Pose, ScalesComeFromTrainingAlone) {
  std::vector<float> poses(4 * kPoseFeatures, 5);
  poses[0] = 1, poses[kPoseFeatures] = 3, poses[2 * kPoseFeatures] = 1000;
  const FrameRange training[] = {{0, 2}};
  const PoseScaler scaler = fit_pose_scaler(poses, training);
  EXPECT_EQ(scaler.mean[0], 2);
  EXPECT_EQ(scaler.deviation[0], 1);
  EXPECT_EQ(scaler.deviation[1], 1);  // it never changes
  scaler.apply(poses);
  EXPECT_EQ(poses[0], -1);
  EXPECT_EQ(poses[1], 0);
}

TEST(Pose, AScaleReadsBackToTheBitAndNothingElseDoes) {
  PoseScaler scaler;
  for (size_t i = 0; i < kPoseFeatures; ++i)
    scaler.mean[i] = 0.1F * static_cast<float>(i) - 1, scaler.deviation[i] = 1 / (3.0F + static_cast<float>(i));
  const std::string text = scaler.text();
  const std::optional<PoseScaler> again = PoseScaler::read(text);
  ASSERT_TRUE(again) << text;
  EXPECT_EQ(again->mean, scaler.mean);
  EXPECT_EQ(again->deviation, scaler.deviation);
  for (const std::string& other :
       {std::string(), text.substr(0, text.rfind(' ')), text + " 1", "nan" + text, "x" + text})
    EXPECT_FALSE(PoseScaler::read(other)) << other;
}

}  // namespace
}  // namespace tandem
