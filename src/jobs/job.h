// jobs/job.h -- one job of a set: a run of its own folder, started by `tandem resume <folder>`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "telemetry/step_record.h"

namespace tandem {

struct SetJob {
  struct Member {
    std::string name, agent;      // "analysis", "analysis-conservative"; "analysis"
    double rule_score = kAbsent;  // of the rule of thumb, for the table
  };

  std::string name;             // "analysis", "analysis-conservative": also its folder's name
  std::string agent;            // the model that it is for; of several: empty
  std::filesystem::path dir;    // <set>/agents/<name>; its recipe.toml is a copy of recipe_toml
  int64_t steps = 0;            // where it ends
  int shards = 1;               // no more devices than this can work on it
  double flops = 1;             // of one step, roughly: what jobs not yet measured are compared by
  int pin = -1;                 // the device that it begins on; -1: any
  double rule_score = kAbsent;  // of the rule of thumb, for the table
  std::string recipe_toml;      // what it trains, as the set began with it; empty: what its recipe.toml says
  std::vector<Member> members;  // several agents that learn side by side in this one run; else empty
};

// How a job stands; filled in while it runs.
struct JobStatus {
  struct Figures {
    double score = kAbsent, average_return = kAbsent;
  };

  enum class State { kWaiting, kRunning, kDone, kStopped, kFailed };
  State state = State::kWaiting;
  int64_t step = 0;
  double seconds = 0;  // training time, of all starts together
  double score = kAbsent, average_return = kAbsent, loss = kAbsent;
  std::map<std::string, Figures> of;  // by agent, where several learn side by side
  std::string digest, kind;
  std::vector<std::string> devices;  // that worked on it in this start of the set
  int restarts = 0, exit_code = 0;
  std::string failure;  // why it failed
};

std::string name_of(JobStatus::State state);

// The figures of one record.
void take_record(const StepRecord& record, JobStatus& status);

// Fills in what the job's folder holds: step, digest, kind, seconds, and the figures of its last records. The score
// that the best of an ensemble is chosen by is this one.
void read_job(const SetJob& job, JobStatus& status);

int64_t saved_step(const SetJob& job);  // of its newest checkpoint; 0 where there is none
// The job has made all its steps and saved them.
bool is_done(const SetJob& job);
// Of one that is done: its newest checkpoint is whole and of its last step. Reads every byte; true where none is kept,
// and where it can't be told (no right to read).
bool end_is_whole(const SetJob& job);

// A set as its tables show it: one row for each agent, also of those that learn side by side. Digests of the latter are
// left empty: whoever can read weights fills them in.
struct SetRows {
  std::vector<SetJob> jobs;
  std::vector<JobStatus> status;
  std::vector<int> first;  // by job of the set: its first row
};
SetRows rows_of(const std::vector<SetJob>& jobs, const std::vector<JobStatus>& status);

}  // namespace tandem
