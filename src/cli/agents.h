// cli/agents.h -- what the commands about trained agents share: eval, act, and the gates of a training that goes on.
#pragma once

#include "cli/arguments.h"
#include "recipes/web_evaluation.h"

namespace tandem {

// --episodes and --seed of `eval`. Throws ConfigError.
EvaluationPlan evaluation_plan(const Arguments& arguments);

}  // namespace tandem
