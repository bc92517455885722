// jobs/estimate.h -- how fast each device is and what each job costs, from what was measured as far as anything was.
//
// A job that runs tells its own speed. One that waits is compared by its arithmetic with those that ran on devices of
// the same model. Slots that were slowed by name ("cpu:2@1,0.5") keep their shares.
#pragma once

#include <map>
#include <string>
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

  std::vector<double> speeds() const;  // of the devices; 1 is the fastest model at full speed
  double step_seconds(int job) const;  // on a device of speed 1
  bool is_measured() const { return !models_.empty(); }
  std::map<std::string, double> models() const;  // measured, for later runs
  static std::string model_of(const DeviceSpec& device);

 private:
  double throughput(const std::string& model) const;
  double fastest() const;

  std::vector<DeviceSpec> devices_;
  std::vector<double> flops_;
  std::vector<int> shards_;
  double combine_share_;
  std::map<std::string, std::map<int, double>> models_;  // arithmetic per second of a full slot, by model and job
  std::map<std::string, double> assumed_;
  struct Measured {
    std::vector<int> devices;
    double steps_per_second;
  };
  std::map<int, Measured> jobs_;  // the newest of each
};

}  // namespace tandem
