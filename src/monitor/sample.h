// monitor/sample.h -- one look at the machine and at the runs on it: what every view shows, whatever its form.
//
// A value that could not be read is absent, never 0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hardware/gpu.h"
#include "telemetry/learning_figures.h"

namespace tandem {

struct HostReading {
  std::string name;
  int cpus = 0;                       // that this process may use
  std::optional<double> cpu_percent;  // of the whole machine
  std::optional<double> load;         // of the last minute
  std::optional<uint64_t> memory_total_bytes, memory_used_bytes;
};

struct RankReading {
  int rank = 0;
  std::string device, uuid;  // "cuda:0", "cpu:1"; the uuid of a GPU
  std::optional<int> gpu;    // its GPU among those of the sample
  std::string state;         // "computing", "combining", "starting", "ended"; empty if not known
  std::string phase;         // of the step
  int first_shard = 0;       // of a contiguous range
  int shards = 0;            // 0: a spare
  std::optional<double> shards_per_s, busy_percent;
  std::optional<int64_t> pid;
  std::optional<double> cpu_percent;  // of one core
  std::optional<uint64_t> memory_bytes;
  int restarts = 0;
};

struct RunReading {
  std::string id, recipe, status, dir;  // status as `tandem runs` has it
  std::string name;                     // what people call it: its agent, or the recipe
  std::string started;                  // UTC
  std::string host;                     // where it runs, if not here
  int64_t step = 0, total_steps = 0;    // total 0: not known
  std::string unit;                     // "samples"
  std::optional<double> loss, learning_rate, grad_norm;
  std::optional<double> window_loss;  // mean over what came since the last look
  LearningFigures figures;            // return and score, where its recipe reports them
  std::optional<double> steps_per_s, samples_per_s;
  std::optional<double> seconds_left, since_step_s, step_seconds;
  std::vector<std::pair<std::string, double>> phases;      // share of the step, newest record
  std::vector<std::pair<std::string, double>> job_losses;  // where a run trains several models
  std::vector<RankReading> ranks;
  std::string event_kind, event_text;  // the newest event
  std::optional<double> event_time;    // Unix
  std::string warning;                 // the newest warning or fault of this start
  bool alive() const { return status == "running"; }
  // No step for long, measured by its own pace.
  bool stalled() const;
};

struct MonitorSample {
  double time = 0;  // Unix
  HostReading host;
  std::string driver;       // of the GPUs; empty if there is none
  std::string driver_note;  // "older than CUDA 13.0 needs"
  std::string gpu_trouble;  // why there are no GPUs to show: NVML's words
  std::vector<GpuFacts> facts;
  std::vector<GpuReading> gpus;  // as many as facts, in their order
  std::vector<bool> visible;     // as many: what CUDA_VISIBLE_DEVICES leaves to programs started from here
  std::vector<RunReading> runs;  // those that go on, then those that ended lately
  size_t runs_left_out = 0;      // there are so many more

  bool hidden(size_t gpu) const { return gpu < visible.size() && !visible[gpu]; }
  // The run and rank that a process belongs to, as "tiny-...-r6k9da rank 0"; empty: none of these.
  std::string owner_of(int64_t pid) const;
};

// The six letters at the end of an id: enough for a person.
std::string short_run_id(const std::string& id);

}  // namespace tandem
