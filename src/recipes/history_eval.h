// recipes/history_eval.h -- `eval` of a run that learned from recorded transitions alone: no environment is known, so
// what its greedy policy would earn is estimated on the episodes that were held out (rl/off_policy.h).
#pragma once

#include "rl/dqn/dqn_settings.h"
#include "rl/off_policy.h"

namespace tandem {

struct Command;
class QFunction;
class RunFolder;

// The greedy policy on rows of states; no action where a value is no number. `q` must outlive it.
StatePolicy greedy_on_states(const QFunction& q);

// Prints value, interval and what was recorded; returns the exit code. Throws ConfigError where nothing can judge:
// files that are gone or changed, too few episodes held out.
int eval_by_history(const Command& command, const RunFolder& run, const DqnSettings& settings);

}  // namespace tandem
