// forecast/rows.h -- the lines of `tandem plan`: what a training takes on 1, 2, ... devices. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "forecast/calibration.h"
#include "forecast/memory_model.h"
#include "forecast/money.h"
#include "forecast/prices.h"
#include "forecast/step_model.h"

namespace tandem {

struct PlanDevice {
  ForecastDevice device;
  std::string name;         // "cuda:0", "H100"
  double memory_bytes = 0;  // of the card; 0: not known, or the CPU's
  double watts = 0;         // its power limit; 0: of the CPU, or not known
};

struct PlanRow {
  std::string precision;
  int64_t batch = 0;
  std::vector<int> used;  // which of the devices
  std::vector<std::string> names;
  StepForecast step;
  double steps_per_s = 0, samples_per_s = 0;
  double seconds = 0;  // the whole training, start and end included; 0: it has no end in steps
  double speedup = 1, efficiency = 1;
  std::optional<double> guide;  // what the guides say of as many GPUs
  MemoryForecast memory;        // of the worker that needs most
  double memory_limit = 0;      // of the smallest card among them; 0: none
  bool fits() const { return memory_limit <= 0 || memory.total() <= memory_limit; }
  double watts = 0, kwh = 0, cost = 0;
  std::optional<double> cloud_cost;  // the same hardware rented
  std::string cloud;                 // where
  double error = 0;                  // of the time, as a share
};

struct PlanQuestion {
  JobShape job;
  std::vector<PlanDevice> devices;
  std::vector<int> counts;       // of devices, ascending
  std::vector<int64_t> batches;  // the first is the recipe's own
  double memory_fraction = .9;   // of a card that may be used
  double measured_w = 0;         // of one card while it trains; 0: nobody looked
  int cores = 1;
  Prices prices;
  // What it costs to rent these devices for an hour, and where; nothing if nobody has them.
  std::function<std::optional<CloudPrice>(const std::vector<int>& used)> rent;
  double past_error = 0;  // of earlier forecasts
};

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
