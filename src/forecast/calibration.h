// forecast/calibration.h -- what was measured on the devices at hand, from which forecasts are made: short runs of the
// real recipe (trials), kept in a file for each machine, recipe and settings.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

// What a job consists of, whoever trains it.
struct JobShape {
  int64_t total_steps = 0;  // 0: only a clock ends it
  std::string unit = "samples";
  double weights_bytes = 0, optimizer_bytes = 0, other_bytes = 0;
  double shard_bytes = 0;     // state of one shard: environments, replay
  double combine_floats = 0;  // of the longest vector that is summed
  double kept_bytes = 0;      // among other_bytes: the copy to roll back to
  double replicated_bytes() const { return weights_bytes + optimizer_bytes + other_bytes; }
  // Of other_bytes, and of all that, what lies on the worker's device: a large copy to roll back to does not on a GPU.
  double other_on_device(bool gpu) const;
  double bytes_on_device(bool gpu) const { return weights_bytes + optimizer_bytes + other_on_device(gpu); }
};

struct TrialDevice {
  std::string model = "cpu";  // "cpu", or the GPU's name
  double speed = 1;           // speed of a worker that was slowed by name
  int core = -1;              // that it was put on; -1: wherever the system liked
  bool operator==(const TrialDevice&) const = default;
};

// One run of some seconds.
struct Trial {
  std::vector<TrialDevice> devices;
  int64_t batch = 0, shards = 1;  // of all workers together
  bool per_device = false;        // `shards = "devices"`: one shard a device, and batch is that of one
  std::string precision = "fp32";
  int64_t steps = 0;            // that were counted
  double step_seconds = 0;      // of the mean step, without snapshots
  double deviation = 0;         // of that mean, as a share of it
  double samples = 0;           // of a step, in the run's unit
  double compute_seconds = 0;   // of a step: the busiest worker
  double combine_seconds = 0;   // of a step: the worker that waited least
  double load_seconds = 0;      // of a step: the worker that waited most for batches; not kept in a file
  int64_t snapshots = 0;        // that were taken
  double snapshot_seconds = 0;  // of one of them
  double start_seconds = 0;     // until the first step began, and what the first steps took more than later ones
  double end_seconds = 0;       // after the last one
  double memory_bytes = 0;      // the most of any worker: of its GPU where it has one, else resident
  double memory_start = 0;      // before it had any shard
  int64_t most_held = 0;        // shards that one worker held at most; 0: not known
  int64_t in_pass = 0;          // shards that shared a pass at most (engine/shard_groups.h); 0: not known
  double power_w = 0;           // of all its GPUs, where the driver reports it; 0: not known
  JobShape shape;               // with the trial's settings (a smaller replay)
};

struct Calibration {
  std::string recipe, machine, made;  // made: UTC
  int cores = 1;
  double load = 0;  // of the machine, by others, as it began: the kernel's one-minute average
  std::vector<Trial> trials;
};

// How far its trials may be off since others used the machine meanwhile, as a share: a load of 8 on 16 cores may have
// taken half of them.
double load_error(const Calibration& calibration);

nlohmann::json to_json(const Calibration& calibration);
std::optional<Calibration> calibration_from(
    const nlohmann::json& json);  // nothing if it is damaged or of another version

// XDG_CACHE_HOME/tandem/plan, or ~/.cache/tandem/plan; empty if there is no home.
std::filesystem::path forecast_cache();
// The name of a calibration's file: 16 digits of a SHA-256 over these.
std::string calibration_key(const std::string& machine, const std::string& recipe, const std::string& settings);
// Those trials that apply to a run on these devices, or on the first ones of them: a file may hold trials of others.
// All of them where none does.
Calibration trials_for(const Calibration& calibration, const std::vector<TrialDevice>& devices);
std::optional<Calibration> load_calibration(const std::filesystem::path& cache, const std::string& key);
// False if it could not be written: then it is measured again next time.
bool keep_calibration(const std::filesystem::path& cache, const std::string& key, const Calibration& calibration);

}  // namespace tandem
