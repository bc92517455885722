// jobs/live_job.h -- what the runner of a set knows of a job while it runs, beside its JobStatus.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "jobs/job_process.h"
#include "jobs/schedule.h"

namespace tandem {

struct LiveJob {
  std::unique_ptr<JobProcess> process;
  MetricsTail tail;
  int ready_for = -1;        // the process is up and waits for this device to be free
  bool was_ready = false;    // this start of it: what it took says nothing of others
  bool may_be_early = true;  // not again once that failed
  std::vector<int> devices = {};
  std::vector<PlannedJob::Joining> joining = {};
  double started = 0;  // this start of it
  double window = 0;   // since when `devices` alone are at work
  int64_t window_step = -1;
  double asked_again = 0;            // not before this time
  double first_step_after = -1;      // seconds from its start
  std::map<int, double> since = {};  // device -> when it came
  std::map<int, int> ranks = {};     // device -> its rank in the job's run

  struct Asked {  // the last request for joiners
    double at = 0;
    int64_t step = 0;
    int joined_before = 0;        // as joined_so_far() counts
    double steps_per_second = 0;  // at that time; 0: not measured
    std::vector<int> devices;     // that came then; none any more once some left
  };
  Asked asked = {};

  bool runs() const { return process && ready_for < 0; }

  void begin(const std::vector<int>& on, double now) {
    was_ready = ready_for >= 0;
    ready_for = -1;
    devices = on;
    started = now;
    first_step_after = -1;
    joining.clear();
    asked = {};
    ranks.clear();
    for (size_t i = 0; i < on.size(); ++i) {
      since[on[i]] = now;
      ranks[on[i]] = static_cast<int>(i);
    }
    measure_anew(now);
  }

  void drop() {  // its process is ended and gone, if it was not
    process.reset();
    ready_for = -1;
  }

  // Who works on it has changed: what was measured before is of others.
  void measure_anew(double now) {
    window = now;
    window_step = -1;
  }

  // Steps a second since `devices` alone are at work; 0 before it was watched for so long.
  double steps_per_second(int64_t step, double now, double least_seconds) const {
    const double seconds = now - window;
    return window_step >= 0 && seconds >= least_seconds ? static_cast<double>(step - window_step) / seconds : 0;
  }

  // They are free; returns since when each worked on it.
  std::vector<std::pair<int, double>> give_up(const std::vector<int>& leaving) {
    std::vector<std::pair<int, double>> worked;
    for (const int device : leaving) {
      if (const auto came = since.find(device); came != since.end()) worked.emplace_back(device, came->second);
      since.erase(device);
      ranks.erase(device);
      std::erase(devices, device);
      std::erase_if(joining, [&](const auto& joiner) { return joiner.device == device; });
    }
    return worked;
  }
};

// By device: does it work on a job, or is it on its way to one?
inline std::vector<bool> busy_devices(const std::vector<LiveJob>& jobs, size_t devices) {
  std::vector<bool> busy(devices);
  for (const LiveJob& job : jobs) {
    for (const int device : job.devices) busy[static_cast<size_t>(device)] = true;
    for (const auto& joiner : job.joining) busy[static_cast<size_t>(joiner.device)] = true;
  }
  return busy;
}

}  // namespace tandem
