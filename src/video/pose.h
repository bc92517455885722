// video/pose.h -- where an animal's parts are, from DeepLabCut's CSV, as 18 numbers a frame.
//
// The file has three header rows (scorer, bodyparts, coords), then a row a frame: its number, and x, y, likelihood of
// each part. Six parts are used: mouth, L_frontpaw, R_frontpaw, L_hindpaw, R_hindpaw, tail_base. A part whose
// likelihood is below 0.6, or that has no number, keeps its last place; before its first one, it has that.
//   8 lengths: mouth to each frontpaw, tail_base to each hindpaw, between the frontpaws, between the hindpaws, and the
//   left and the right side from frontpaw to hindpaw; 10 angles (radians, 0 to pi): at the mouth, at tail_base, and at
//   each paw the two between its crossing line and its other two.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "market/data_findings.h"

namespace tandem {

inline constexpr int32_t kPoseFeatures = 18;

// 18 numbers for each frame, one frame after the other. What is wrong goes to `findings`; the result is then short.
std::vector<float> read_pose(std::string_view text, const std::string& file, DataFindings& findings);

// z-scores by what training alone has seen.
struct PoseScaler {
  std::array<float, kPoseFeatures> mean{}, deviation{};  // a feature that never changes has deviation 1
  void apply(std::span<float> poses) const;
  std::string text() const;  // all numbers, to the bit
  static std::optional<PoseScaler> read(std::string_view text);
};
struct FrameRange {
  int64_t first = 0, count = 0;
};
PoseScaler fit_pose_scaler(std::span<const float> poses, std::span<const FrameRange> training);

}  // namespace tandem
