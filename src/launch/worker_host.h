// launch/worker_host.h -- the supervisor of a rank other than 0: holds one worker and its snapshots for rank 0's
// launcher.
//
// It decides nothing. Messages of the worker go up, those of the launcher go down; the worker's progress goes up ten
// times a second, its records and its log as they come, its death with its cause; it is started, paused and killed when
// the launcher says so. It has three buffers for snapshots of its own, which a worker's death can't reach, and moves
// parts of them on request. It survives its worker, so whatever started it (torchrun, mpirun) notices nothing.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "config/devices.h"
#include "launch/rank_info.h"
#include "launch/worker_handle.h"
#include "launch/worker_program.h"

namespace tandem {

inline constexpr uint64_t kChunkBytes = 1 << 20;  // of a snapshot, in one frame

struct WorkerHostRequest {
  RankInfo info;
  std::string secret;
  Build build;  // its worker is started as `<worker> work <folder>`
  double join_seconds = 60;
};

// Returns the exit code that rank 0 sent. Throws Error: ConfigError if it never came to that, kPeerLost if rank 0 went
// away.
int host_worker(const WorkerHostRequest& request);

nlohmann::json to_json(const WorkerState& state);
WorkerState state_from(const nlohmann::json& json);

}  // namespace tandem
