// command/trial_run.h -- real training for some seconds, in a folder that is gone afterwards: what bench and plan
// measure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "command/command.h"
#include "command/sources.h"
#include "config/devices.h"
#include "forecast/calibration.h"

namespace tandem {

struct TrialRequest {
  std::string recipe;   // name or .toml file; not of a set of jobs
  bool flags = true;    // those of this command line hold for it
  std::string devices;  // as --devices takes them
  std::optional<int64_t> batch;
  std::string precision;  // empty: the recipe's
  double seconds = 5;     // of training, from the first steps on; more where each is slow (launch/trial_clock.h)
};

// Ctrl-C or SIGTERM during a trial: the code to end with.
struct TrialInterrupted {
  int code;
};

// The first steps are not counted (forecast/trial_times.h), snapshots are counted apart. Throws ConfigError
// for settings that do not go together, Error if the run fails, TrialInterrupted.
Trial run_trial(const Command& command, const TrialRequest& request);

// Throws ConfigError if the recipe can't be trained with this batch: refused before anything is measured.
void check_batch(const Command& command, const std::string& recipe, int64_t batch);

// The first n of these, as --devices takes them.
std::string first_devices(const std::vector<DeviceSpec>& all, size_t count);
std::string devices_named(const std::vector<DeviceSpec>& some);

// A replay that is small enough to be saved in a moment, where the recipe has one: it changes no step's speed.
void shrink_replay(ResolvedRecipe& recipe);

// What the job consists of, with these settings: the worker is asked, which takes a second. Throws Error.
JobShape describe_job(const Command& command, const std::string& recipe, const Resolver& resolver);

}  // namespace tandem
