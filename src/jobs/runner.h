// jobs/runner.h -- a set of jobs from its first start to its end: one process a job, on the devices there are.
//
// jobs/schedule.h says who runs where; this carries it out. A job that dies by itself is gone on with, a few times; one
// that fails does not stop the others.
//   Ctrl-C, SIGTERM, SIGHUP: every job finishes its step, saves and ends; a second Ctrl-C ends them now.
//   SIGUSR1: all save and go on. Ctrl-Z stops everybody.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/devices.h"
#include "jobs/estimate.h"
#include "jobs/job.h"
#include "jobs/schedule.h"
#include "launch/worker_program.h"

namespace tandem {

struct SetRequest {
  std::string title;          // the name of its recipe
  std::filesystem::path dir;  // of the set
  std::vector<SetJob> jobs;   // in the user's order
  std::vector<DeviceSpec> devices;
  std::shared_ptr<const WorkerProgram> program;  // that a job is: ourselves
  std::string version;                           // of it; whoever asks a run to grow must be of the same
  std::vector<std::string> unset_variables;      // settings of ours that are in the jobs' recipes already
  ScheduleOptions schedule;
  Estimate estimate;
  std::vector<double> save_seconds = {};  // by job: its device is taken until it has saved; none: no time
  double seconds_beside = 0;              // of the forecast, after the last run
  bool quiet = false, json = false, color = true;
  double max_seconds = 0;  // 0: no limit
  std::string advice;      // how to go on: "tandem resume RUN"
  // Called now and then, and at the end: what stands in the set's files.
  std::function<void(const std::vector<JobStatus>&, const std::vector<Segment>& course)> note;
};

struct SetOutcome {
  int code = 0;
  std::string status;  // done, stopped, failed
  std::vector<JobStatus> jobs;
  std::vector<Segment> course;  // what really was, in seconds since the start
  double seconds = 0;
  double forecast_seconds = 0;  // made once every job that ran first was measured; else at the start
  double first_forecast_seconds = 0;
  int joins = 0;
  std::map<std::string, double> models;  // what devices were measured to do
  ScheduleOptions schedule;              // with what starts and joins were measured to cost
};

SetOutcome run_set(SetRequest request);

}  // namespace tandem
