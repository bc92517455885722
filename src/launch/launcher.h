// launch/launcher.h -- one run: starts a worker per device, watches them, and sees the run to its end. Under another
// launcher (torchrun, mpirun) it is rank 0, with one worker here and the others under supervisors elsewhere.
//
// It holds what a worker's death must not reach: the member list (fleet/coordinator.h), the snapshots, the records of
// the steps, the files. No port, no name: workers are forked from its main thread and inherit memory and a socket pair;
// when it dies they die. It links no libtorch.
//   Ctrl-C, SIGTERM, SIGHUP: the step is finished, saved, and the run ends (130, 143); a second Ctrl-C ends it now.
//   SIGUSR1: save and go on. Ctrl-Z stops everybody. A worker that dies or freezes is named, its shards go to the
//   others, a replacement is started.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/devices.h"
#include "config/run_settings.h"
#include "launch/worker_program.h"

namespace tandem {

class Gathering;

// What `tandem plan` says of a run before it begins; run.json then has it beside what came of it.
struct RunForecast {
  double start_seconds = 0, step_seconds = 0, end_seconds = 0;
  double memory_bytes = 0;  // of the worker that needs most
};

struct LaunchRequest {
  std::filesystem::path run_dir;                // made by the caller
  std::string recipe_toml;                      // resolved and checked; what every worker of this start trains
  std::shared_ptr<const WorkerProgram> worker;  // started as `<worker> work <run_dir>`
  std::vector<DeviceSpec> devices;
  const RecipeSettings* settings = nullptr;
  bool resume = false;               // go on from the newest whole checkpoint
  std::filesystem::path checkpoint;  // ... or from this one; what came after it is then abandoned
  bool json = false, quiet = false, color = true;
  double max_seconds = 0;                                                            // 0: no limit
  std::string program = "tandem";                                                    // for advice: what the user types
  std::function<std::vector<DeviceSpec>(const std::string& devices)> parse_devices;  // for workers that join
  double trial_seconds = 0;  // not 0: a measurement, of so many seconds (launch/trial_clock.h)
  std::optional<RunForecast> forecast;
  Gathering* net = nullptr;  // ranks 1, 2, ... are held by supervisors elsewhere (launch/rendezvous.h), all gathered
};

// Returns the exit code. Errors that have a message for the user come out as Error.
int launch(const LaunchRequest& request);

}  // namespace tandem
