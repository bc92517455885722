// jobs/schedule.h -- which job of a set runs on which devices next, and when all of them will be done. Pure: no
// process, no clock.
//
// A free device takes the next job at once; there are no rounds. When no job waits, it joins one that still runs, if
// that ends the set earlier: workers may join a job at any step without changing a bit of it. What a job gains is
// counted in whole shards, and joining costs what it costs, so a device may be better off idle.
//
// Which job it takes is looked for to the end of the set (Assignment::kSearched): the longest first leaves halves of
// devices with the wrong rest. A device is never kept waiting while a job waits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem {

enum class Strategy { kAgents, kDdp };  // one job a device, or each job on all of them
enum class Assignment { kSearched, kBalanced, kSpecialized, kHierarchical };  // which waiting job a free device takes

struct PlannedJob {
  double work = 0;  // what is left, in seconds of a device of speed 1
  int shards = 1;   // no more devices than this can work on it
  int pin = -1;     // the only device it may begin on
  bool begun = false, done = false;
  std::vector<int> devices;  // that work on it
  double start_left = 0;     // seconds until it computes

  struct Joining {
    int device;
    double left;  // seconds until it computes
  };
  std::vector<Joining> joining = {};
};

struct ScheduleOptions {
  Strategy strategy = Strategy::kAgents;
  Assignment assignment = Assignment::kSearched;
  double start_seconds = 2;   // from a job's start to its first step
  double join_seconds = 1.5;  // until a joiner computes; the job goes on meanwhile
  double hold_seconds = 0.3;  // ... and stands still for this long
  double combine_share = .2;  // of a step that several workers lose on agreeing (docs/web-test.md)
  double least_gain = 0.5;    // seconds that a join must win
  // By device: it joins jobs of its own kind alone, for between kinds bits differ. Empty: all are of one kind.
  std::vector<int> kinds = {};
};

struct JobMove {
  int job;
  std::vector<int> devices;
  bool join;  // else the job begins
};

// Seconds of work done in a second: 1 on one device of speed 1. Shards are whole, and every worker has at least one.
double work_rate(int shards, const std::vector<double>& speeds, double combine_share);

// What the free devices should do now; empty where waiting is best. Devices that belong to no job are free.
std::vector<JobMove> next_moves(const std::vector<PlannedJob>& jobs, const std::vector<double>& speeds,
                                const ScheduleOptions& options);

// Devices that work on a job which would be done sooner without them: a slow one that a fast one came to help holds it
// up with its whole shards and its part of every agreement. At least a tenth faster, and with enough left to pay for
// going.
struct Leave {
  int job;
  std::vector<int> devices;
};
std::vector<Leave> burdens(const std::vector<PlannedJob>& jobs, const std::vector<double>& speeds,
                           const ScheduleOptions& options);

struct Segment {  // of the forecast: `device` works on `job`
  int device, job;
  double begin, end;
};
struct Forecast {
  double seconds = 0;           // until all are done
  double mean_seconds = 0;      // of the jobs' ends
  std::vector<double> ends;     // by job; 0 for one that is done
  std::vector<Segment> course;  // by time of beginning
};
Forecast forecast(std::vector<PlannedJob> jobs, const std::vector<double>& speeds, const ScheduleOptions& options);

// The work there is, spread over all devices without any loss: nothing can be faster.
double ideal_seconds(const std::vector<PlannedJob>& jobs, const std::vector<double>& speeds);

std::string_view name_of(Assignment assignment);

}  // namespace tandem
