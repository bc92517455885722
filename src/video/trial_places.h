// video/trial_places.h -- where each trial of a video begins.
//
// Trials lie end to end, in the order of their numbers. Frame counts from 0 or 1: in each trial, or on through the
// whole video. Where it counts through the video it tells the place, so frames between two trials are a gap, as missing
// rows inside a trial are: an error, and with `accept_gaps` a warning. A trial that is not there is an error always if
// the next one counts from its own beginning: nobody knows how long the missing one was.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "market/data_findings.h"

namespace tandem {

class TrialPlaces {
 public:
  TrialPlaces(bool accept_gaps, DataFindings& findings) : accept_gaps_(accept_gaps), findings_(findings) {}

  // The first frame of the next trial, of `frames` frames, the first of which has the number `first_number`.
  int64_t place(int32_t trial, const std::string& file, int64_t first_number, int64_t frames);
  int64_t end() const { return end_; }  // of the trials so far

 private:
  void skip_to(int64_t first_number, const std::string& file);

  const bool accept_gaps_;
  DataFindings& findings_;
  std::optional<int32_t> last_trial_;
  std::optional<int64_t> base_;  // 0 or 1: what the video's first frame is called
  int64_t end_ = 0;
};

}  // namespace tandem
