// apps/video/video_entry.h -- what the app of `video` adds to the recipe: its data at the start of a run, what is said
// of them, and its commands.
#pragma once

#include <vector>

#include "config/recipe_list.h"

namespace tandem {

std::vector<RecipeInfo> with_video(std::vector<RecipeInfo> recipes);

}  // namespace tandem
