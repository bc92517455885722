// apps/video/video_predict.h -- `tandem predict RUN video.mp4`: what happens in each frame of any video.
#pragma once

#include "config/recipe_list.h"

namespace tandem {

RecipeVerb video_predict_verb();

}  // namespace tandem
