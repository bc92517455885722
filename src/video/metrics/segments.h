// video/metrics/segments.h -- how well stretches of one action were found, beside how well single frames were.
//
// A segment is a longest run of frames of one label within a trial, without a gap in its annotation. A predicted
// segment is right when it overlaps a true one of its label, not yet taken, by at least the threshold (intersection
// over union); of several true ones the one with the largest overlap counts, the earlier one of equals. Every label
// counts, rest too.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem {

inline constexpr double kSegmentOverlap = 0.3;

struct ActionSegment {
  int64_t label = 0, begin = 0, end = 0;  // frames [begin, end)
  bool operator==(const ActionSegment&) const = default;
};
std::vector<ActionSegment> segments_of(std::span<const int64_t> labels);

// Over any number of trials: add up, then ask.
struct SegmentCounts {
  int64_t right = 0, wrong = 0, missed = 0;
  void add(const SegmentCounts& other) { right += other.right, wrong += other.wrong, missed += other.missed; }
  double f1() const;  // 0 where there is no segment at all
};
// Of one trial, or of a part of it between two gaps; both have as many frames.
SegmentCounts match_segments(std::span<const int64_t> truth, std::span<const int64_t> predicted,
                             double overlap = kSegmentOverlap);

}  // namespace tandem
