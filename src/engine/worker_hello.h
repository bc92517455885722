// engine/worker_hello.h -- how a worker and its launcher meet: what it left in the environment, and what the worker
// says of the job when it has built it, the same on every worker.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "engine/train_loop.h"
#include "fleet/snapshot_layout.h"

namespace tandem {

// The part of the hello message (launch/run_record.h) that follows from the job; recipe, settings and usage are the
// worker's to add.
nlohmann::json hello_of(TrainLoop& loop, const SnapshotLayout& layout, int64_t last_step);

// A number that the launcher left in the environment. Throws ConfigError where no launcher started this process.
int64_t number_from_launcher(const char* name);

}  // namespace tandem
