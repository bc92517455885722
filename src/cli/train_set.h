// cli/train_set.h -- `train` and `resume` of a recipe that is a set of jobs (jobs/job_set.h).
#pragma once

#include "command/command.h"
#include "config/resolved_recipe.h"
#include "jobs/job_set.h"
#include "runs/run_folder.h"

namespace tandem {

int train_set(const Command& command, ResolvedRecipe& recipe, const JobSet& jobs);
int resume_set(const Command& command, ResolvedRecipe& recipe, const JobSet& jobs, const RunFolder& run);

// --dry-run: what would run where, and for how long. (show_set.cc)
void show_set(const Command& command, const ResolvedRecipe& recipe, const PreparedSet& set, const Estimate& estimate);

}  // namespace tandem
