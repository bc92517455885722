// explain/split.h -- one worker's step, cut into what its time went for. Seconds per step.
#pragma once

#include <array>
#include <vector>

#include "explain/explain.h"

namespace tandem {

enum Part {
  kCompute,        // arithmetic of the shards
  kLaunches,       // asking for operations: the device has nothing to do meanwhile
  kLoading,        // waiting for data
  kCommunication,  // the sum itself
  kWaiting,        // for members that have more to do, or do it more slowly
  kUneven,         // for members that were late this time, by turns
  kThrottled,      // what a GPU's lower clock costs, itself and those who wait for it
  kCrowded,        // ready to run while others had the cores, and waiting for a member that was
  kUpdate,
  kIdle,   // no shards
  kOther,  // records, what is between the parts
  kParts
};
const char* part_name(Part part);

struct StepSplit {
  const RankRow* row = nullptr;
  std::array<double, kParts> seconds{};
  double busy = 0;  // before its combine: work and data
  double total() const;
};

// Of those that did steps; empty if none did.
std::vector<StepSplit> split(const Evidence& evidence);

}  // namespace tandem
