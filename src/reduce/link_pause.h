// reduce/link_pause.h -- how the host waits for a link between GPUs.
#pragma once

#include <sched.h>
#include <time.h>

#include "base/clock.h"

namespace tandem {

// Where a run asks for it, a phase waits so long for a link that forms; then it goes on through host memory: another
// member may have refused, and the words tell.
inline constexpr double kLinkFormWaitSeconds = 1;

// One look less often than the last: at first others may run, later for a moment nothing does.
inline void pause_for_link(double waits_since) {
  constexpr double kSpinSeconds = 0.0002;
  if (monotonic_seconds() - waits_since < kSpinSeconds) {
    sched_yield();
    return;
  }
  const timespec moment{0, 50'000};
  nanosleep(&moment, nullptr);
}

}  // namespace tandem
