#include "jobs/set_end.h"

namespace tandem {

void conclude(std::vector<JobStatus>& jobs, int stop_code, SetOutcome& outcome) {
  outcome.code = stop_code;
  outcome.status = stop_code ? "stopped" : "done";
  bool all_done = true;
  for (JobStatus& status : jobs) {
    all_done = all_done && status.state == JobStatus::State::kDone;
    if (status.state == JobStatus::State::kWaiting) status.state = JobStatus::State::kStopped;
    if (status.state != JobStatus::State::kFailed || stop_code != 0) continue;
    outcome.status = "failed";
    if (outcome.code == 0) outcome.code = status.exit_code > 0 && status.exit_code < 128 ? status.exit_code : 1;
  }
  if (all_done) outcome.code = 0, outcome.status = "done";
  outcome.jobs = jobs;
}

}  // namespace tandem
