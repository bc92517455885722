// apps/options/options_eval.h -- `tandem eval` and `tandem backtest` of options: the run's worker trades greedily over
// days that it never trained on, and the answer is judged (apps/options/judgement.h).
//
// The worker is asked {"ask": "play", "part": "test"}: the test period of the run's own fold, or {"ask": "play",
// "part": "all", "data": "/folder", "symbols": "A,B", "from": 20250102, "to": 20250331}: days of other data; the last
// three may be left out.
#pragma once

#include "config/recipe_list.h"

namespace tandem {

// Of one run, or of all folds and seeds of a set. Writes evaluation.json and the page. Exit code 3 where an action
// changed with the future.
RecipeVerb options_eval_verb();
// Of one run on the bars of a folder; `--trades` lists every fill.
RecipeVerb options_backtest_verb();

}  // namespace tandem
