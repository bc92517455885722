// jobs/estimate.h -- how fast each device is and what each job costs, from what was measured as far as anything was.
//
// A job that runs tells its own speed. One that waits is compared by its arithmetic with those that ran: each reading
// is taken as the model's speed, times how far this device is off its name ("cpu:2@1,0.5"), over how far this job is
// off its arithmetic. What several devices on one job lose on agreeing is learned from those that did.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config/devices.h"
#include "jobs/job.h"

namespace tandem {

class Estimate {
 public:
  Estimate(const std::vector<DeviceSpec>& devices, const std::vector<SetJob>& jobs, double combine_share);

  // `devices`, and they alone, made this many steps of a job a second.
  void measured(int job, const std::vector<int>& devices, double steps_per_second);
  void assume(const std::string& model, double flops_per_second);  // of an earlier run; a measurement goes before it

  std::vector<double> speeds() const;  // of the devices; 1 is the fastest at full speed
  double step_seconds(int job) const;  // on a device of speed 1
  double combine_share() const { return combine_share_; }
  std::map<std::string, double> models() const;  // measured, for later runs
  static std::string model_of(const DeviceSpec& device);

 private:
  void fit();
  double throughput(int device) const;  // at full speed, as far as its name goes
  double fastest() const;

  std::vector<DeviceSpec> devices_;
  std::vector<double> flops_;
  std::vector<int> shards_;
  double combine_share_;
  bool share_measured_ = false;                  // else it is a guess, or of an earlier run
  std::map<std::pair<int, int>, double> alone_;  // job, device: arithmetic a second over the share of its name
  std::map<std::string, double> models_;         // the same, of a model
  std::vector<double> off_;                      // logarithm, by device
  std::map<std::string, double> assumed_;
  struct Measured {
    std::vector<int> devices;
    double steps_per_second;
  };
  std::map<int, Measured> jobs_;       // the newest of each
  std::map<int, double> steps_alone_;  // by job: a second, on a device of speed 1, before others joined
};

}  // namespace tandem
