// reduce/link_pause.h -- how the host waits for a link between GPUs.
#pragma once

#include <sched.h>
#include <time.h>

#include <algorithm>

#include "base/clock.h"

namespace tandem {

// Where a run asks for it, a phase waits so long for a link that forms; then it goes on through host memory: another
// member may have refused, and the words tell.
inline constexpr double kLinkFormWaitSeconds = 1;

// One look less often than the last: at first others may run, later for a moment nothing does. What usually takes a few
// milliseconds at most is looked at often for so long, and a quarter longer: a sleep would end late by a good part.
inline void pause_for_link(double waits_since, double usual_seconds = 0) {
  constexpr double kSpinSeconds = 0.0002, kMostSpinSeconds = 0.003;
  const double usual = 1.25 * usual_seconds,
               spins = usual > kMostSpinSeconds ? kSpinSeconds : std::max(kSpinSeconds, usual);
  if (monotonic_seconds() - waits_since < spins) {
    sched_yield();
    return;
  }
  const timespec moment{0, 50'000};
  nanosleep(&moment, nullptr);
}

}  // namespace tandem
