// video/clip_set.h -- the clips of some trials: runs of frames inside one trial, labelled by their centre frame.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "video/annotations.h"
#include "video/video_set.h"

namespace tandem {

struct ClipRules {
  int32_t length = 17;  // frames, odd
  int32_t stride = 1;   // frames from the start of a clip to that of the next
};

struct Clip {
  int64_t first_frame = 0;  // in the set's frames; the others follow it
  int32_t trial = 0;        // in VideoSet::trials()
  int16_t label = 0;        // the centre frame's class, never kNoLabel
};

// Clips [begin, end) of a list.
struct ClipStretch {
  size_t begin = 0, end = 0;
  bool operator==(const ClipStretch&) const = default;
};
// The longest ones of which each clip is of the same trial as the one before and a stride behind it. Frames without a
// label lie between two of them: what happens on either side is not one action.
std::vector<ClipStretch> stretches_of(std::span<const Clip> clips, int32_t stride);

// "3 of 40 trials are shorter than a clip of 17 frames and have none: a.csv, ..."; empty: none is.
std::string short_trials_text(const VideoSet& set, const ClipRules& rules = {});

// In the order of `trials`, frames ascending within each. A trial shorter than a clip has none. Throws ConfigError if
// no trial has one.
std::vector<Clip> clips_of(const VideoSet& set, std::span<const int32_t> trials, const ClipRules& rules = {});

}  // namespace tandem
