// explain/explain.h -- why a run is as fast as it is: shares of its step, and the causes that are worth a remedy.
//
// Pure functions over a run's records (explain/read_run.h); the launcher asks the same ones while a run goes on. The
// shares add up to 1: the mean over the run's workers of where a step's time went. A cause is named when its remedy
// would make the run a quarter faster (kWorthNaming, kWorthMoreWork); docs/explain.md says how each is recognised.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "explain/rank_times.h"

namespace tandem {

inline constexpr double kWorthNaming = 0.20;    // without this share of the step the run is 1.25 times as fast
inline constexpr double kWorthMoreWork = 0.40;  // twice the batch at this share that no batch changes: 1.25 times
inline constexpr int64_t kTileRows = 32;        // rows that a GEMM needs to fill a GPU's or a core's lanes

// What gpus.jsonl says of one GPU of the run.
struct GpuEvidence {
  int index = 0;
  double throttled = 0;              // share of the readings in which it was slowed down, idle ones apart
  double clock = 1;                  // its clock in those, as a share of what it has otherwise
  std::vector<std::string> reasons;  // "thermal_hw", the most frequent first
};

struct Evidence {
  std::vector<RankRow> ranks;  // times of the part of the run that is looked at
  std::vector<GpuEvidence> gpus;
  std::vector<int> idle_gpus;  // of this machine, neither in the run nor used by anybody else
  // of the run
  std::string run, recipe, precision = "fp32";
  std::string program = "tandem", dir;  // for commands to copy; the folder as it is found from here
  int64_t batch = 0, shards = 1, accumulation = 1, loader_threads = 0,
          prefetch = 2;  // prefetch below 0: as many as threads need
  int cores = 0;
  bool live = false, done = false;   // goes on; has reached its goal, so that nothing is left to resume
  std::optional<double> idle_cores;  // that had nothing to do, on average
  std::vector<OtherProgram> others;  // that had the cores while the run waited for them
  bool others_now = false;           // in the newest record, not in an older one
};

enum class Cause { kIdle, kThrottling, kImbalance, kCommunication, kLoader, kLaunches, kSmallBatch, kJitter, kCrowded };
const char* cause_name(Cause cause);  // "one-gpu-idle", "throttling", "imbalance", ...

struct SlowDown {
  Cause cause = Cause::kLoader;
  double share = 0;                  // of the step, or of all devices
  int who = -1;                      // the rank that is idle, throttled or waited for
  std::string text;                  // "GPU 1 waits for GPU 0 (38 % of each step)"
  std::string why, remedy, command;  // the command to copy
  bool sure = false;                 // twice what it takes to be named, over at least 50 steps
};

struct Explanation {
  double steps = 0, step_seconds = 0;
  std::vector<std::pair<std::string, double>> shares;  // by name, in a fixed order; they add up to 1
  std::vector<SlowDown> findings;                      // the largest first; empty: healthy
  std::string hint;                                    // for a healthy run: what would still help
  bool enough = false;                                 // steps to judge by
  double share(const std::string& name) const;
  std::string verdict() const;  // one line
};

Explanation explain(const Evidence& evidence);
nlohmann::json to_json(const Explanation& explanation);
std::string explanation_text(const Explanation& explanation, const Evidence& evidence);

}  // namespace tandem
