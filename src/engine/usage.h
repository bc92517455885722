// engine/usage.h -- what a worker used: memory at most, and where its time went. Reported to the launcher with each
// part of a snapshot, kept in run.json, and what forecasts are made from.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tandem {

struct WorkerPage;

struct HostMemory {
  uint64_t now_bytes = 0, peak_bytes = 0;  // resident, shared pages included; 0: not known
};
HostMemory host_memory();

// {"memory_bytes", "memory_now", "card_bytes", "card_now", "steps", "step_s", "compute_s", "combine_s", "load_s",
// "snapshot_s"}; those of a GPU where there is one; with a part of a snapshot also "shards_in_pass". Bytes are the most
// so far, "now" those of this moment; step_s is all of the steps with their records, without snapshots. `filled`: bytes
// of the launcher's memory that this worker has filled and does not map, by buffer: they are needed for it, and belong
// to "memory_bytes".
nlohmann::json usage_of(const WorkerPage& page, const std::map<unsigned, uint64_t>& filled = {});
}  // namespace tandem
