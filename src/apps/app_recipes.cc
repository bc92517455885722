#include "apps/app_recipes.h"

#include "apps/chess/chess_verbs.h"
#include "apps/data_verb.h"
#include "apps/options/options_entry.h"
#include "apps/video/video_entry.h"
#include "apps/web_test/entry.h"

namespace tandem {

std::vector<RecipeInfo> app_recipes(const AgentOnGpu& on_gpu) {
  return with_video(with_options(with_web_test(shipped_recipes(on_gpu))));
}

std::vector<RecipeVerb> app_verbs() {
  std::vector<RecipeVerb> verbs = chess_verbs();
  verbs.push_back(data_verb());
  return verbs;
}

}  // namespace tandem
