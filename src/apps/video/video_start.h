// apps/video/video_start.h -- a run of `video` begins: its videos are decoded and verified, and what is in them is
// said.
#pragma once

#include <filesystem>

#include "command/command.h"
#include "config/resolved_recipe.h"

namespace tandem {

// Videos, trials, split, the table of classes with counts, shares and weights, batches in all and per device. Decodes
// what is not decoded yet and notes the data's digest in the settings. On GPUs alone bf16 is the default.
void take_videos(const Command& command, ResolvedRecipe& recipe);
// Before a run goes on: refuses data that have changed.
void keep_videos(ResolvedRecipe& recipe, const std::filesystem::path& run_dir);

}  // namespace tandem
