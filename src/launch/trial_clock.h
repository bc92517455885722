// launch/trial_clock.h -- when a measurement has seen enough. Pure.
//
// Its time begins behind the steps that are no measure (telemetry/trial_rule.h), and is longer than asked for where
// steps are so slow that too few would be counted. Where ten times as long, and a minute, were not enough for them, the
// fewest that times_of() takes do.
#pragma once

#include <algorithm>
#include <cstdint>

#include "telemetry/trial_rule.h"

namespace tandem {

class TrialClock {
 public:
  TrialClock(double seconds, const TrialRule& rule) : seconds_(seconds), rule_(rule) {}

  // `steps` were done by now.
  bool is_over(int64_t steps, double now) {
    if (steps < rule_.warm_up) return false;
    if (began_ == 0) began_ = now;
    const bool waited = now - began_ >= std::max(10 * seconds_, kSlowSeconds);
    return now - began_ >= seconds_ && steps >= rule_.warm_up + (waited ? TrialRule{}.least : rule_.least);
  }

 private:
  static constexpr double kSlowSeconds = 60;
  double seconds_, began_ = 0;
  TrialRule rule_;
};

}  // namespace tandem
