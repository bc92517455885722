// apps/options/options_data.h -- what `options` finds out before a run begins: its data, its folds, its precision.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "command/command.h"
#include "config/resolved_recipe.h"
#include "market/market_data.h"
#include "recipes/options_settings.h"

namespace tandem {

// Reads the data, or says loudly that the market is generated; the folder's full path and the digest go into the
// settings. Every fold that is asked for must be possible. On GPUs alone, where nobody chose a precision, it is TF32.
// Throws ConfigError.
void take_market(const Command& command, ResolvedRecipe& recipe);

// The folds that a run, or a set with walk_forward, would be cut into. Throws ConfigError where training would refuse.
std::vector<MarketFold> folds_of(const MarketData& data, const OptionsSettings& settings);

// A run goes on with the data that it began with, wherever the folder is now. Throws ConfigError if it has changed.
void keep_market(ResolvedRecipe& recipe, const std::filesystem::path& run_dir);

}  // namespace tandem
