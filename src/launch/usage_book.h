// launch/usage_book.h -- what the workers of a run used, as they reported it (engine/usage.h), for run.json.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "fleet/snapshot_layout.h"

namespace tandem {

class UsageBook {
 public:
  // With each part of a snapshot. What a worker was when it said hello is kept apart: memory before any shard, and the
  // times of the first steps, in which caches fill.
  void reported(int rank, const std::string& device, const nlohmann::json& message);
  // With each generation: how many shards it has from then on.
  void holds(int rank, int shards);

  // [{"rank", "device", "shards", "shards_in_pass", "memory_bytes", "memory_start_bytes", "card_bytes",
  // "card_start_bytes", "steps", "compute_s", "combine_s", "load_s", "steps_all", "step_all_s", "snapshots",
  // "snapshot_s"}]: shards and bytes at most; times since its first snapshot, where it took several, but for those of
  // all steps and of the snapshots themselves, which are since its hello.
  nlohmann::json to_json() const;

 private:
  struct Book {
    std::string device;
    nlohmann::json hello, first, last;
    int64_t snapshots = 0;
    int shards = 0;  // at most
  };
  std::map<int, Book> ranks_;
};

struct RunForecast;

// {"forecast_seconds", "forecast_error", "took_seconds", "memory_bytes", "forecast_memory_bytes",
// "forecast_memory_error"}: the forecast for as many steps as were done, beside them. Errors are forecast / truth - 1.
nlohmann::json outcome_of(const RunForecast& forecast, double seconds, int64_t steps, const nlohmann::json& usage);

// {"weights_bytes", "optimizer_bytes", "other_bytes", "kept_bytes", "shard_bytes", "combine_floats"}: what a job
// consists of.
nlohmann::json state_bytes(const SnapshotLayout& layout, int64_t combine_floats);

}  // namespace tandem
