// tests/simulation/simulation.h -- one seeded schedule of a whole run: workers, launcher, links, disk, and what goes
// wrong.
//
// The seed decides everything: the job, who acts next, when a message arrives, who dies where. The same seed gives the
// same schedule, event by event. A run ends well if its final state equals that of the plain sequential run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "world.h"

namespace tandem::simulation {

struct Options {
  uint64_t seed = 1;
  int workers = 0;  // 0: drawn from the seed
  Mutant mutant = Mutant::kNone;
  bool verbose = false;
};

struct ScheduleResult {
  std::string violation;            // empty: none
  std::vector<std::string> events;  // the last ones before it
  std::string job;                  // "24 shards, 2 phases, 13 steps, stateful, 5 workers"
  uint64_t ticks = 0;
  int deaths = 0, fences = 0, generations = 0, gone_on = 0, restores = 0, snapshots = 0, joins = 0, restarts = 0,
      flips = 0;
};

ScheduleResult simulate(const Options& options);

// Its name on the command line; kNone for one that is not known.
Mutant mutant_named(const std::string& name);
const std::vector<std::pair<std::string, Mutant>>& mutants();

}  // namespace tandem::simulation
