// runs/recipe_file.h -- recipe.toml of a run that goes on is a copy for people: edits of it are put aside, never taken.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace tandem {

// The same settings, where each start of a run says anew on which devices and for how long.
bool same_but_for_place(std::string_view recipe_toml, std::string_view other);

// Makes recipe.toml of this run folder say `toml`. What somebody else wrote there is theirs: it is kept beside it,
// every edit under a name of its own (recipe.changed.toml, recipe.changed-2.toml, ...). Returns what to tell the user,
// in which `whose` ("the run", "the set") went on meanwhile; empty if the file was right. It never throws: a file that
// can't be put right is reported in the same way.
std::string put_recipe_right(const std::filesystem::path& run_dir, const std::string& toml, std::string_view whose);

}  // namespace tandem
