// explain/rank_times.h -- where each worker's time went, as its page reports it and as ranks.jsonl of a run keeps it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fleet/worker_page.h"

namespace tandem {

// Seconds since the worker was started, or between two readings.
struct RankTimes {
  double steps = 0;
  double step = 0;               // all of it; snapshots come on top, and are no part of it
  double work = 0, load = 0;     // shards; waiting for their data
  double combine = 0, late = 0;  // in combines; of that, waiting for the last member
  double update = 0, snapshot = 0;
  double gpu_wait = 0;                       // of the work: the host waited for the GPU
  double operations = 0, counted_steps = 0;  // of libtorch, in the steps that were counted
  double operation = 0;                      // what one costs; not a sum
  double delay = 0;                          // ready to run while others had the cores
  double made = 0, asleep = 0;               // making the batches that were looked at; asleep meanwhile

  RankTimes& operator+=(const RankTimes& other);
  RankTimes operator-(const RankTimes& earlier) const;
  double operations_per_step() const { return counted_steps > 0 ? operations / counted_steps : 0; }
};

RankTimes times_in(const WorkerPage& page);
nlohmann::json to_json(const RankTimes& times);    // an array: short
RankTimes times_from(const nlohmann::json& json);  // zeros for what is no such array

// One worker in one line of ranks.jsonl.
struct RankRow {
  int rank = 0;
  std::string device;      // "cuda:1"
  std::optional<int> gpu;  // NVML's number of its GPU
  bool on_gpu = false;
  bool pinned = false;  // to one core, its loader's threads too
  int shards = 0;
  RankTimes times;           // in all since the run's start
  std::string name() const;  // "GPU 1", "worker 2 (cpu:2)"
};

// A program that is no part of the run, and how many cores it took.
struct OtherProgram {
  int64_t pid = 0;
  std::string name;
  double cores = 0;
};

struct TimesLine {
  double time = 0;  // Unix seconds
  int64_t step = 0;
  uint64_t generation = 0;  // of the plan: shards of rows change with it
  std::vector<RankRow> ranks;
  int cores = 0;                     // that the run may use on its launcher's machine; 0: not known
  int loader_threads = 0;            // of a worker, as its launcher chose it; 0: not known
  std::optional<double> idle;        // core-seconds in which these had nothing to do, since the boot
  std::vector<OtherProgram> others;  // looked for only while the run waits for cores
};

nlohmann::json to_json(const TimesLine& line);
std::optional<TimesLine> line_from(const std::string& text);

}  // namespace tandem
