// apps/web_test/web_test_set.h -- web-test as a set of jobs (jobs/job_set.h): six agents, each a run of web-agent.
#pragma once

#include <memory>

#include "jobs/job_set.h"

namespace tandem {

inline constexpr const char* kAgentRecipe = "web-agent";

std::shared_ptr<const JobSet> web_test_set();

}  // namespace tandem
