// apps/web_test/eval.h -- the verb `eval`: how good the agents of a run are.
#pragma once

#include "apps/web_test/web_evaluation.h"
#include "command/arguments.h"

namespace tandem {

RecipeVerb eval_verb();

// --episodes and --seed of `eval`. Throws ConfigError.
EvaluationPlan evaluation_plan(const Arguments& arguments);

}  // namespace tandem
