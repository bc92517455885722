// forecast/rows.h -- the lines of `tandem plan`: what a training takes on 1, 2, ... devices. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "forecast/calibration.h"
#include "forecast/memory_model.h"
#include "forecast/money.h"
#include "forecast/pauses.h"
#include "forecast/prices.h"
#include "forecast/step_model.h"

namespace tandem {

struct PlanDevice {
  ForecastDevice device;
  std::string name;         // "cuda:0", "H100"
  double memory_bytes = 0;  // of the GPU; 0: not known, or the CPU's
  double watts = 0;         // its power limit; 0: of the CPU, or not known
  std::string gpu = "";     // several workers may share one: which it is; empty: its own
};
// The devices that draw power, each GPU once: several workers may share one.
std::vector<size_t> different_gpus(const std::vector<PlanDevice>& devices);

struct PlanRow {
  std::string precision;
  int64_t batch = 0;
  std::vector<int> used;  // which of the devices
  std::vector<std::string> names;
  StepForecast step;
  double steps_per_s = 0, samples_per_s = 0;
  double seconds = 0;  // the whole training, start and end included; 0: it has no end in steps
  double start_seconds = 0, end_seconds = 0;
  Pauses pauses;  // snapshots and checkpoints
  double speedup = 1, efficiency = 1;
  std::optional<GuideFigures>
      guide;                // what the recipe's guide says of as many GPUs; minutes and dollars on H100s alone
  MemoryForecast memory;    // of the worker that needs most
  double memory_limit = 0;  // what one of them may take: of the smallest GPU, of the host's memory; 0: not known
  bool fits() const { return memory_limit <= 0 || memory.total() <= memory_limit; }
  double watts = 0, kwh = 0, cost = 0;
  std::optional<double> cloud_cost;  // the same hardware rented
  std::string cloud;                 // where
  double error = 0;                  // of the time, as a share
};

struct PlanQuestion {
  std::string recipe = "";
  JobShape job;
  std::vector<PlanDevice> devices;
  std::vector<int> counts;       // of devices, ascending
  std::vector<int64_t> batches;  // the first is the recipe's own
  double memory_fraction = .9;   // of a GPU that may be used
  double host_bytes = 0;         // of memory for workers on the CPU together; 0: not known
  double measured_w = 0;         // of one GPU while it trains; 0: nobody looked
  int cores = 1;
  CheckpointRule checkpoints;
  Prices prices;
  // What it costs to rent these devices for an hour, and where; nothing if nobody has them.
  std::function<std::optional<CloudPrice>(const std::vector<int>& used)> rent;
  double past_error = 0;  // of earlier forecasts
};

// What a run of these steps takes: the row's times.
struct RunTimes {
  double start = 0, training = 0, end = 0;
  Pauses pauses;
  double seconds() const { return start + training + pauses.seconds() + end; }
};
RunTimes run_times(const StepModel& steps, const StepForecast& step, const JobShape& job, int workers,
                   const CheckpointRule& rule, double busy_cores);
// Share of the processor that workers on the CPU keep busy.
double busy_cores(const std::vector<ForecastDevice>& devices, int cores);

// For each batch, each count: the best devices of that number.
std::vector<PlanRow> plan_rows(const PlanQuestion& question, const StepModel& steps, const MemoryModel* memory,
                               const std::string& precision);
// Which row of one batch and precision to take: the fastest that fits; fewer devices where more bring less than 2 %.
const PlanRow* best_row(const std::vector<PlanRow>& rows, int64_t batch, const std::string& precision);

// "1..8", "4", "1,2,4": numbers of devices. Throws ConfigError.
std::vector<int> parse_counts(std::string_view text, int most);
// "128,256": batches. Throws ConfigError.
std::vector<int64_t> parse_batches(std::string_view text);

}  // namespace tandem
