#include "video/metrics/segments.h"

#include <algorithm>
#include <stdexcept>

namespace tandem {
namespace {

double overlap_of(const ActionSegment& a, const ActionSegment& b) {
  const int64_t common = std::min(a.end, b.end) - std::max(a.begin, b.begin);
  if (common <= 0) return 0;
  return static_cast<double>(common) / static_cast<double>(a.end - a.begin + b.end - b.begin - common);
}

}  // namespace

std::vector<ActionSegment> segments_of(std::span<const int64_t> labels) {
  std::vector<ActionSegment> segments;
  for (int64_t frame = 0; frame < static_cast<int64_t>(labels.size()); ++frame) {
    const int64_t label = labels[static_cast<size_t>(frame)];
    if (segments.empty() || segments.back().label != label) segments.push_back({label, frame, frame});
    segments.back().end = frame + 1;
  }
  return segments;
}

SegmentCounts match_segments(std::span<const int64_t> truth, std::span<const int64_t> predicted, double overlap) {
  if (truth.size() != predicted.size()) throw std::logic_error("segments of two lists that differ in length");
  const std::vector<ActionSegment> real = segments_of(truth);
  std::vector<bool> taken(real.size(), false);
  SegmentCounts counts;
  for (const ActionSegment& found : segments_of(predicted)) {
    size_t best = real.size();
    double most = 0;
    for (size_t i = 0; i < real.size(); ++i) {
      if (real[i].label != found.label) continue;
      const double common = overlap_of(real[i], found);
      if (common > most) most = common, best = i;
    }
    if (best < real.size() && most >= overlap && !taken[best]) {
      taken[best] = true;
      ++counts.right;
    } else {
      ++counts.wrong;
    }
  }
  counts.missed = static_cast<int64_t>(std::ranges::count(taken, false));
  return counts;
}

double SegmentCounts::f1() const {
  const int64_t all = 2 * right + wrong + missed;
  return all > 0 ? 2 * static_cast<double>(right) / static_cast<double>(all) : 0;
}

}  // namespace tandem
