// apps/options/options_set.h -- options as a set of jobs (jobs/job_set.h): every fold of a walk-forward plan, with
// several seeds, each a run of the recipe itself in <set>/agents/fold-2-seed-7.
#pragma once

#include <memory>
#include <vector>

#include "jobs/job_set.h"
#include "recipes/options_settings.h"

namespace tandem {

// One run of the set.
struct FoldJob {
  int64_t fold = 1, folds = 1, seed = 1;
  std::string model() const;  // "fold-2": what its seeds are tries of
  std::string name() const;   // "fold-2-seed-7"
};

// Folds in order, the seeds of a fold one after the other. Without walk_forward: the fold of one run, with all seeds.
std::vector<FoldJob> fold_jobs(const OptionsSettings& settings);

// Updates of a run that ends by whatever comes first; 0: by time alone.
int64_t last_update(const OptionsSettings& settings);

std::shared_ptr<const JobSet> options_set();

}  // namespace tandem
