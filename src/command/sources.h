// command/sources.h -- gathers a recipe's settings from everywhere, the weakest source first:
// default < user file < project file < recipe file given < TANDEM_* environment < flags.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "command/arguments.h"
#include "command/output.h"
#include "config/resolved_recipe.h"

namespace tandem {

class RunFolder;

// `subject` is a recipe's name or a .toml file; empty: what ./tandem.toml names. Throws ConfigError.
ResolvedRecipe resolve_recipe(const std::string& subject, const Arguments& arguments, const CliContext& context,
                              const Output& output);

// Settings that a command itself puts between a run's own and what was given again: key and value.
using Presets = std::vector<std::pair<std::string, std::string>>;
using PresetsOf = std::function<Presets(const RecipeSettings&)>;

// The settings of a run, from its recipe.toml, then `presets` (source: `preset_name`), then environment and flags.
ResolvedRecipe resolve_run(const std::filesystem::path& recipe_toml, const Arguments& arguments,
                           const CliContext& context, const Output& output, const PresetsOf& presets = {},
                           const std::string& preset_name = "");

// The same from a text that is not the file's own: that which a run was given by its set. `name` stands in errors.
ResolvedRecipe resolve_run_text(const std::string& toml, const std::string& name, const Arguments& arguments,
                                const CliContext& context, const Output& output);

// The recipe that run.json names, else recipe.toml; empty: neither does. Throws ConfigError if recipe.toml is broken.
std::string recipe_of_run(const RunFolder& run);

// --runs-root, TANDEM_RUNS_ROOT, `runs_root` of ./tandem.toml or the user's file, ./runs.
std::filesystem::path runs_root(const Arguments& arguments);

}  // namespace tandem
