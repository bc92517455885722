#include "runs/recipe_file.h"

#include <fmt/format.h>

#include <optional>

#include "base/errors.h"
#include "base/file_system.h"
#include "base/plain_file.h"
#include "telemetry/atomic_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLargestRecipe = 1 << 20;
constexpr int kMostEdits = 10'000;

// Without the lines that each start writes anew.
std::string without_place(std::string_view toml) {
  std::string rest;
  for (size_t begin = 0; begin < toml.size();) {
    const size_t end = std::min(toml.find('\n', begin), toml.size());
    const std::string_view line = toml.substr(begin, end - begin);
    if (!line.starts_with("devices =") && !line.starts_with("max_time =")) {
      for (size_t i = 0; i < line.size(); ++i)  // sources stand in one column, wherever the longest value puts it
        if (line[i] != ' ' || i == 0 || line[i - 1] != ' ') rest += line[i];
      rest += '\n';
    }
    begin = end + 1;
  }
  return rest;
}

// A name that nothing has yet; the name of an earlier edit where that is the same text.
fs::path place_for_edit(const fs::path& dir, const std::optional<std::string>& text) {
  std::error_code none;
  for (int number = 1; number < kMostEdits; ++number) {
    const fs::path place =
        dir / (number == 1 ? std::string("recipe.changed.toml") : fmt::format("recipe.changed-{}.toml", number));
    if (fs::symlink_status(place, none).type() == fs::file_type::not_found) return place;
    if (text && not_a_file(place).empty() && read_small_file(place, kLargestRecipe) == text) return place;
  }
  throw ConfigError(fmt::format("there are {} edits of recipe.toml in {}", kMostEdits, dir.string()),
                    "each is kept under a name of its own", "remove those that nobody needs");
}

}  // namespace

bool same_but_for_place(std::string_view recipe_toml, std::string_view other) {
  return without_place(recipe_toml) == without_place(other);
}

std::string put_recipe_right(const fs::path& run_dir, const std::string& toml, std::string_view whose) {
  const fs::path file = run_dir / "recipe.toml";
  std::error_code none;
  const bool there = fs::symlink_status(file, none).type() != fs::file_type::not_found;
  const auto text = not_a_file(file).empty() ? read_small_file(file, kLargestRecipe) : std::nullopt;
  if (text == toml) return "";
  try {
    fs::path kept;
    if (there) FileSystem::real().rename(file, kept = place_for_edit(run_dir, text));
    write_file_atomically(file, toml);
    if (!there) return fmt::format("recipe.toml was removed while {} went on; it is there again", whose);
    return fmt::format(
        "recipe.toml was changed while {} went on, which kept the recipe it began with; the change is in {}", whose,
        kept.filename().string());
  } catch (const Error& error) {
    return fmt::format("recipe.toml is not what {} began with: {} ({})", whose, error.what(), error.why());
  }
}

}  // namespace tandem
