#include "video/pose.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/printable.h"
#include "market/csv_rows.h"

namespace tandem {
namespace {

enum PosePart { kMouth, kLeftFront, kRightFront, kLeftHind, kRightHind, kTail, kParts };
constexpr std::array<const char*, kParts> kPartNames = {"mouth",     "L_frontpaw", "R_frontpaw",
                                                        "L_hindpaw", "R_hindpaw",  "tail_base"};
constexpr double kLeastLikelihood = 0.6;
constexpr size_t kMostPoseColumns = 1024;
constexpr size_t kLongestPoseLine = size_t{1} << 16;

struct Point {
  double x = 0, y = 0;
};
using Pose = std::array<Point, kParts>;

constexpr std::array<std::array<PosePart, 2>, 8> kLengths = {{{kMouth, kLeftFront},
                                                              {kMouth, kRightFront},
                                                              {kTail, kLeftHind},
                                                              {kTail, kRightHind},
                                                              {kLeftFront, kRightFront},
                                                              {kLeftHind, kRightHind},
                                                              {kLeftFront, kLeftHind},
                                                              {kRightFront, kRightHind}}};
// The angle at the second of the three.
constexpr std::array<std::array<PosePart, 3>, 10> kAngles = {{{kLeftFront, kMouth, kRightFront},
                                                              {kLeftHind, kTail, kRightHind},
                                                              {kMouth, kLeftFront, kRightFront},
                                                              {kRightFront, kLeftFront, kLeftHind},
                                                              {kMouth, kRightFront, kLeftFront},
                                                              {kLeftFront, kRightFront, kRightHind},
                                                              {kTail, kLeftHind, kRightHind},
                                                              {kRightHind, kLeftHind, kLeftFront},
                                                              {kTail, kRightHind, kLeftHind},
                                                              {kLeftHind, kRightHind, kRightFront}}};

double length_of(Point a, Point b) { return std::sqrt((a.x - b.x) * (a.x - b.x) + (a.y - b.y) * (a.y - b.y)); }

double angle_of(Point a, Point at, Point b) {
  const double both = length_of(a, at) * length_of(b, at);
  if (!(both > 0)) return 0;
  const double cosine = ((a.x - at.x) * (b.x - at.x) + (a.y - at.y) * (b.y - at.y)) / both;
  return std::acos(std::clamp(cosine, -1.0, 1.0));
}

// Multiples of 2^-10: the last bits of acos differ between versions of libm, and a set's digest must not.
float on_grid(double value) { return static_cast<float>(std::round(value * 1024) / 1024); }

void add_features(const Pose& pose, std::vector<float>& out) {
  for (const auto& [a, b] : kLengths) out.push_back(on_grid(length_of(pose[a], pose[b])));
  for (const auto& [a, at, b] : kAngles) out.push_back(on_grid(angle_of(pose[a], pose[at], pose[b])));
}

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  while (fields.size() <= kMostPoseColumns) {
    const size_t end = line.find(',');
    std::string_view field = line.substr(0, end);
    while (!field.empty() && (field.back() == '\r' || field.back() == ' ')) field.remove_suffix(1);
    while (!field.empty() && field.front() == ' ') field.remove_prefix(1);
    fields.push_back(field);
    if (end == line.npos) break;
    line.remove_prefix(end + 1);
  }
  return fields;
}

// Where x, y and likelihood of each part stand.
struct PoseColumns {
  std::array<std::array<size_t, 3>, kParts> of{};
  size_t count = 0;
};
std::optional<PoseColumns> find_columns(const std::vector<std::string_view>& parts,
                                        const std::vector<std::string_view>& coords, const std::string& file,
                                        DataFindings& findings) {
  PoseColumns columns{.count = coords.size()};
  std::string missing;
  for (size_t part = 0; part < kParts; ++part)
    for (size_t coord = 0; coord < 3; ++coord) {
      constexpr std::array kCoords = {"x", "y", "likelihood"};
      size_t at = 0;
      for (size_t i = 1; i < std::min(parts.size(), coords.size()); ++i)
        if (parts[i] == kPartNames[part] && coords[i] == kCoords[coord] && at == 0) at = i;
      if (at == 0) missing += fmt::format("{}{} {}", missing.empty() ? "" : ", ", kPartNames[part], kCoords[coord]);
      columns.of[part][coord] = at;
    }
  if (missing.empty() && parts.size() == coords.size()) return columns;
  findings.error("columns", file, 2,
                 missing.empty() ? "the header's rows differ in length" : fmt::format("the header lacks {}", missing));
  return std::nullopt;
}

class PoseReader {
 public:
  PoseReader(const std::string& file, DataFindings& findings) : file_(file), findings_(findings) {}

  bool header(int64_t row, std::vector<std::string_view> fields) {
    constexpr std::array kFirst = {"scorer", "bodyparts", "coords"};
    if (fields[0] != kFirst[static_cast<size_t>(row)]) {
      findings_.error("columns", file_, row + 1,
                      fmt::format("\"{}\" where DeepLabCut writes \"{}\"", printable(fields[0].substr(0, 40)),
                                  kFirst[static_cast<size_t>(row)]));
      return false;
    }
    if (row == 1) parts_ = fields;
    if (row == 2) columns_ = find_columns(parts_, fields, file_, findings_);
    return row != 2 || columns_.has_value();
  }

  bool frame(int64_t line, const std::vector<std::string_view>& fields) {
    if (fields.size() != columns_->count) {
      findings_.error("line", file_, line,
                      fmt::format("{} fields where the header has {}", fields.size(), columns_->count));
      return false;
    }
    if (parse_number(fields[0]) != static_cast<double>(poses_.size())) {
      findings_.error(
          "frame", file_, line,
          fmt::format("frame \"{}\" where {} comes next", printable(fields[0].substr(0, 20)), poses_.size()));
      return false;
    }
    poses_.emplace_back();
    for (size_t part = 0; part < kParts; ++part) place(part, fields);
    return true;
  }

  std::vector<float> features() {
    std::vector<float> out;
    for (size_t part = 0; part < kParts; ++part)
      if (!seen_[part] && !poses_.empty()) {
        findings_.error("part", file_, 0,
                        fmt::format("{} is never seen with a likelihood of {}", kPartNames[part], kLeastLikelihood));
        return out;
      }
    out.reserve(poses_.size() * kPoseFeatures);
    for (const Pose& pose : poses_) add_features(pose, out);
    return out;
  }

 private:
  void place(size_t part, const std::vector<std::string_view>& fields) {
    const auto& at = columns_->of[part];
    const std::optional<double> x = parse_number(fields[at[0]]), y = parse_number(fields[at[1]]),
                                likelihood = parse_number(fields[at[2]]);
    constexpr double kFar = 1e6;
    const bool good =
        x && y && likelihood && std::abs(*x) < kFar && std::abs(*y) < kFar && *likelihood >= kLeastLikelihood;
    Point& now = poses_.back()[part];
    if (good && !seen_[part])
      for (Pose& pose : poses_) pose[part] = {*x, *y};
    if (good)
      now = {*x, *y}, seen_[part] = true;
    else if (poses_.size() > 1)
      now = poses_[poses_.size() - 2][part];
  }

  const std::string& file_;
  DataFindings& findings_;
  std::vector<std::string_view> parts_;
  std::optional<PoseColumns> columns_;
  std::vector<Pose> poses_;
  std::array<bool, kParts> seen_{};
};

}  // namespace

std::vector<float> read_pose(std::string_view text, const std::string& file, DataFindings& findings) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  PoseReader reader(file, findings);
  int64_t line_number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    ++line_number;
    if (line_number > 3 && (line.empty() || line == "\r")) continue;
    if (line.size() > kLongestPoseLine) {
      findings.error("line", file, line_number, "the line is too long");
      return {};
    }
    const std::vector<std::string_view> fields = fields_of(line);
    if (line_number <= 3 ? !reader.header(line_number - 1, fields) : !reader.frame(line_number, fields)) return {};
  }
  if (line_number <= 3) {
    findings.error("empty", file, 0, "three rows of header and a row for each frame are DeepLabCut's form");
    return {};
  }
  return reader.features();
}

PoseScaler fit_pose_scaler(std::span<const float> poses, std::span<const FrameRange> training) {
  PoseScaler scaler;
  for (size_t feature = 0; feature < kPoseFeatures; ++feature) {
    double sum = 0, squares = 0, count = 0;
    for (const FrameRange& range : training)
      for (int64_t frame = range.first; frame < range.first + range.count; ++frame) {
        const double value = poses[static_cast<size_t>(frame) * kPoseFeatures + feature];
        sum += value, squares += value * value, count += 1;
      }
    const double mean = count > 0 ? sum / count : 0;
    const double variance = count > 0 ? std::max(0.0, squares / count - mean * mean) : 0;
    scaler.mean[feature] = static_cast<float>(mean);
    scaler.deviation[feature] = variance > 1e-12 ? static_cast<float>(std::sqrt(variance)) : 1.0F;
  }
  return scaler;
}

std::string PoseScaler::text() const { return fmt::format("{} {}", fmt::join(mean, " "), fmt::join(deviation, " ")); }

std::optional<PoseScaler> PoseScaler::read(std::string_view text) {
  PoseScaler scaler;
  for (auto* const numbers : {&scaler.mean, &scaler.deviation})
    for (float& number : *numbers) {
      while (text.starts_with(' ')) text.remove_prefix(1);
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
      if (error != std::errc() || !std::isfinite(number)) return std::nullopt;
      text.remove_prefix(static_cast<size_t>(end - text.data()));
    }
  if (!text.empty() || std::ranges::any_of(scaler.deviation, [](float d) { return !(d > 0); })) return std::nullopt;
  return scaler;
}

void PoseScaler::apply(std::span<float> poses) const {
  for (size_t i = 0; i < poses.size(); ++i)
    poses[i] = (poses[i] - mean[i % kPoseFeatures]) / deviation[i % kPoseFeatures];
}

}  // namespace tandem
