// jobs/set_end.h -- how a set ended, from how its jobs did.
#pragma once

#include <vector>

#include "jobs/runner.h"

namespace tandem {

// Fills in status, exit code and jobs. `stop_code`: what a stop that was asked for ends with; 0: none was.
void conclude(std::vector<JobStatus>& jobs, int stop_code, SetOutcome& outcome);

}  // namespace tandem
