#include "video/trial_places.h"

#include <fmt/format.h>

namespace tandem {

int64_t TrialPlaces::place(int32_t trial, const std::string& file, int64_t first_number, int64_t frames) {
  const bool of_its_own = first_number <= 1;
  if (!last_trial_ && trial > 1)
    findings_.warning("trial", file, 0, fmt::format("trials begin at {}: it is taken as the first one", trial));
  if (last_trial_ && trial > *last_trial_ + 1 && of_its_own)
    findings_.error("trial", file, 0,
                    fmt::format("trial {} is not there, so nobody knows where trial {} begins: bring it, or number "
                                "trials without a hole where there never was one",
                                trial - 1, trial));
  last_trial_ = trial;
  if (!of_its_own)
    skip_to(first_number, file);
  else if (!base_)
    base_ = first_number;
  const int64_t begin = end_;
  end_ += frames;
  return begin;
}

// Numbers that go on through the video.
void TrialPlaces::skip_to(int64_t first_number, const std::string& file) {
  constexpr int64_t kFirstLine = 2;
  const int64_t base = base_.value_or(0), missing = first_number - base - end_;
  if (missing < 0)
    findings_.error("order", file, kFirstLine,
                    fmt::format("frames are counted from {}: neither from 0 or 1, nor on from {}, where the trial "
                                "before ends",
                                first_number, base + end_));
  if (missing <= 0) return;
  findings_.add(accept_gaps_ ? FindingLevel::kWarning : FindingLevel::kError, "gap", file, kFirstLine,
                fmt::format("{} frame{} missing before {}, the first of this trial", missing, missing == 1 ? "" : "s",
                            first_number));
  if (accept_gaps_) end_ += missing;
}

}  // namespace tandem
