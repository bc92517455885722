// engine/slow_link.h -- shared memory slowed down to a slower link between the members, for tests (TANDEM_SLOW_LINK,
// MB/s).
#pragma once

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "engine/slow_worker.h"
#include "reduce/shm_combine.h"

namespace tandem {

// As it is, unless a link is asked for: then every sum takes as long as its largest would, each member sending and
// receiving (members - 1) / members of it twice, once all have come.
inline std::unique_ptr<ShmCombine> with_slow_link(std::unique_ptr<ShmCombine> combine, const ShmShape& shape) {
  static const double mb_per_second = slowed_by("TANDEM_SLOW_LINK");
  const double members = static_cast<double>(shape.ranges.size());
  if (mb_per_second <= 0 || members < 2) return combine;
  const std::chrono::duration<double> time(2 * (members - 1) / members * 4e-6 * static_cast<double>(shape.max_floats) /
                                           mb_per_second);
  combine->at_points([time](ShmCombine::Point point) {
    if (point == ShmCombine::Point::kReduced) std::this_thread::sleep_for(time);
  });
  return combine;
}

}  // namespace tandem
