#include "apps/video/video_entry.h"

#include "apps/video/video_eval.h"
#include "apps/video/video_predict.h"
#include "apps/video/video_start.h"

namespace tandem {

std::vector<RecipeInfo> with_video(std::vector<RecipeInfo> recipes) {
  for (RecipeInfo& recipe : recipes) {
    if (recipe.name != "video") continue;
    recipe.before_train = take_videos;
    recipe.before_resume = keep_videos;
    recipe.verbs = {video_eval_verb(), video_predict_verb()};
  }
  return recipes;
}

}  // namespace tandem
