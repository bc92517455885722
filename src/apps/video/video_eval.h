// apps/video/video_eval.h -- `tandem eval RUN` of a video classifier: every metric on the clips that it never saw.
#pragma once

#include "config/recipe_list.h"

namespace tandem {

RecipeVerb video_eval_verb();

}  // namespace tandem
