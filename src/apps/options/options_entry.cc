#include "apps/options/options_entry.h"

#include "apps/options/options_data.h"
#include "apps/options/options_eval.h"
#include "apps/options/options_set.h"

namespace tandem {

std::vector<RecipeInfo> with_options(std::vector<RecipeInfo> recipes) {
  for (RecipeInfo& recipe : recipes) {
    if (recipe.name != "options") continue;
    recipe.set = options_set();
    recipe.before_train = take_market;
    recipe.before_resume = keep_market;
    recipe.verbs = {options_eval_verb(), options_backtest_verb()};
  }
  return recipes;
}

}  // namespace tandem
