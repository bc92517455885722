// video/annotations.h -- one trial's actions, read from a CSV of `Frame,Action`; any bytes are safe.
//
// Frame counts the frames, one row each, in order; what the first number says of the trial's place is
// video/trial_places.h's affair. Action is a label's number or name. Trials lie end to end in their video, so a row too
// few would shift all later ones: a gap, a repeated frame and a frame out of order are errors, and so is an unknown or
// empty label. With `accept_gaps` missing frames and empty actions are frames without a label, which are the centre of
// no clip, and a repeated row with the same label counts once; both are warnings then.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "video/class_table.h"

namespace tandem {

inline constexpr int16_t kNoLabel = -1;
inline constexpr int64_t kMostTrialFrames = 10'000'000;

struct Annotation {
  std::vector<int16_t> classes;  // of each frame of the trial, or kNoLabel
  std::vector<int64_t> lines;    // of each frame: where it stands in the file; of a gap: the row after it
  int64_t first_number = 0;      // what the file calls the first one
};

Annotation read_annotation(std::string_view text, const std::string& file, const ClassTable& table, bool accept_gaps,
                           DataFindings& findings);

// "prediction_mouse_3_12.csv": video "mouse_3", trial 12. Nothing: a file of another kind.
struct AnnotationName {
  std::string video;
  int32_t trial = 0;
};
std::optional<AnnotationName> read_annotation_name(std::string_view file);

}  // namespace tandem
