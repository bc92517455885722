// forecast/step_model.h -- how long a step will take on other devices, batches and numbers of workers than were tried.
//
//   step = stretch x (crowd x (shards of the slowest worker) x (compute of a shard) / its speed + fixed +
//   combine(workers))
// Compute and fixed come from trials on one device, at each batch that was tried and on straight lines between and
// beyond; combine and crowd from trials on two. The stretch (forecast/grid.h) makes it pass through every trial of
// several. Pure: no clock, no file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "forecast/calibration.h"
#include "forecast/grid.h"

namespace tandem {

struct ForecastDevice {
  std::string model = "cpu";
  double speed = 1;
  int core = -1;  // that a worker was put on by name; -1: wherever the system likes
};

struct StepForecast {
  double seconds = 0;
  double compute = 0, fixed = 0, combine = 0;  // its parts
  double efficiency = 1;                       // share of the summed speed that whole shards leave
  std::vector<int> shards;                     // by device
  double error = 0;                            // as a share of seconds, as far as the trials show
};

class StepModel {
 public:
  // Only trials of this precision count. Throws ConfigError if none of them was on one device.
  StepModel(const Calibration& calibration, const std::string& precision);

  StepForecast step(int64_t batch, const std::vector<ForecastDevice>& devices) const;
  double start_seconds(int workers) const;
  double end_seconds(int workers, double state_bytes) const;       // the last save grows with what is saved
  double snapshot_seconds(int workers, double state_bytes) const;  // of one; each writes its part
  double samples(int64_t batch, int workers) const;                // of a step
  bool knows(const std::string& model) const { return alone_.contains(model); }
  bool measured(int workers) const { return stretch_.measured(workers); }
  bool measured_combine() const { return combine2_ >= 0; }
  int64_t shards() const { return per_device_ ? 1 << 20 : shards_; }  // no more workers than this
  int64_t shards_of(int workers) const { return per_device_ ? workers : shards_; }
  double combine2() const;                                         // seconds of a combine of two workers
  double crowd(const std::vector<ForecastDevice>& devices) const;  // what workers beside each other cost: a factor

 private:
  struct Point {
    double batch, variable, fixed;  // seconds of a step; variable: divided among shards, at full speed
  };
  const std::vector<Point>& points(const std::string& model, double& factor) const;
  double variable(const std::string& model, double batch) const;
  double fixed(const std::string& model, double batch) const;
  StepForecast unstretched(int64_t batch, const std::vector<ForecastDevice>& devices) const;
  void learn_pairs(const std::vector<const Trial*>& several);
  void learn_stretch(const std::vector<const Trial*>& several);
  std::vector<int> deal(int64_t batch, const std::vector<ForecastDevice>& devices, double& efficiency) const;
  int side_by_side(const std::vector<ForecastDevice>& devices) const;  // cores that work at once
  double turns(const std::vector<ForecastDevice>& devices) const;      // how many take turns on one core

  std::map<std::string, std::vector<Point>> alone_;
  std::string reference_;  // the model with most points
  int64_t shards_ = 1;
  int cores_ = 1;
  bool per_device_ = false;
  bool crowded_cores_ = true;  // the two of the trial had a core each
  double floats_ = 0, combine2_ = -1, crowd2_ = 1;
  // By number of workers: seconds that were measured, in the trials' state.
  std::map<int, double> start_, end_, snapshot_;
  double state_bytes_ = 0;
  Stretch stretch_;
  double samples_per_batch_ = 1, deviation_ = 0;
};

// Expected wait for the slowest of w equal ones, against that for the slower of two.
double wait_growth(int workers);

// The devices that finish a step first, as numbers into `devices`, for each count from 1 on; the fastest count is where
// a further one would only slow the others. All subsets of up to 12 are tried, beyond that the fastest ones.
struct DeviceChoice {
  std::vector<int> used;
  StepForecast step;
};
std::vector<DeviceChoice> choose_devices(const StepModel& model, int64_t batch,
                                         const std::vector<ForecastDevice>& devices, int most);

}  // namespace tandem
