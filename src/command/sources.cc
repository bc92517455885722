#include "command/sources.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/errors.h"
#include "base/file_system.h"
#include "command/variables.h"
#include "config/toml_reader.h"
#include "runs/run_folder.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

struct TextFile {
  std::string name, text;
};

std::optional<std::string> variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (!value || !*value) return std::nullopt;  // an empty one is as good as none
  return value;
}

TextFile read_text(const fs::path& path) {
  try {
    return {path.string(), std::string(read_whole_file(FileSystem::real(), path, kLargestToml).text())};
  } catch (const IoError& error) {
    throw ConfigError(fmt::format("cannot read {}", path.string()), error.why(),
                      "check the path and the rights to read it");
  }
}

std::optional<TextFile> read_if_there(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  return read_text(path);
}

std::optional<TextFile> project_file() { return read_if_there("tandem.toml"); }

std::optional<TextFile> user_file() {
  if (const auto config = variable("XDG_CONFIG_HOME"))
    return read_if_there(fs::path(*config) / "tandem" / "tandem.toml");
  if (const auto home = variable("HOME")) return read_if_there(fs::path(*home) / ".config" / "tandem" / "tandem.toml");
  return std::nullopt;
}

bool is_recipe_file(const std::string& subject) {
  return subject.ends_with(".toml") || subject.find('/') != std::string::npos;
}

std::string recipe_of_file(const TextFile& file, const CliContext& context) {
  if (const auto name = recipe_named_in(file.text, file.name)) return *name;
  throw ConfigError(fmt::format("{} does not say which recipe it is for", file.name),
                    "a recipe file changes settings of a recipe, which it names in its first line",
                    fmt::format("write `recipe = \"{}\"` at its top; `{} recipes` lists the names", context.example(),
                                context.program));
}

ResolvedRecipe make_resolved(const std::string& name, const CliContext& context) {
  ResolvedRecipe resolved{name, find_recipe(context.recipes, name).settings(), nullptr};
  resolved.resolver = std::make_unique<Resolver>(*resolved.settings);
  return resolved;
}

void apply_environment_and_flags(ResolvedRecipe& resolved, const Arguments& arguments, const CliContext& context,
                                 const Output& output) {
  resolved.resolver->apply_environment(variable);
  warn_of_unread_variables(context, output);
  for (const Override& item : arguments.overrides) resolved.resolver->set(item.key, item.value, item.source);
}

void apply_quick(ResolvedRecipe& resolved, const CliContext& context) {
  const RecipeInfo& info = find_recipe(context.recipes, resolved.name);
  if (info.quick.empty()) {
    std::vector<std::string> names;
    for (const RecipeInfo& recipe : context.recipes)
      if (!recipe.quick.empty()) names.push_back(recipe.name);
    throw ConfigError(fmt::format("{} has no --quick", resolved.name),
                      names.empty() ? "none of these recipes has" : fmt::format("{} has", fmt::join(names, ", ")),
                      "leave it out; --steps makes any training shorter");
  }
  for (const auto& [key, value] : info.quick) resolved.resolver->set(key, value, "--quick");
}

}  // namespace

ResolvedRecipe resolve_recipe(const std::string& subject, const Arguments& arguments, const CliContext& context,
                              const Output& output) {
  const auto project = project_file();
  const auto user = user_file();
  std::optional<TextFile> given;
  std::string name = subject;
  if (subject.empty()) {
    auto named = project ? recipe_named_in(project->text, project->name) : std::nullopt;
    if (!named && (context.recipes.size() == 1 || context.first_is_default)) named = context.example();
    if (!named) {
      std::vector<std::string> names;
      for (const RecipeInfo& recipe : context.recipes) names.push_back(recipe.name);
      throw ConfigError("which recipe?", fmt::format("the recipes are: {}", fmt::join(names, ", ")),
                        fmt::format("name one, as in `{} {} {}`", context.program, fmt::join(arguments.command, " "),
                                    names.empty() ? "my.toml" : names.front()));
    }
    name = *named;
  } else if (is_recipe_file(subject)) {
    given = read_text(subject);
    name = recipe_of_file(*given, context);
  }
  ResolvedRecipe resolved = make_resolved(name, context);
  if (user) resolved.resolver->apply_defaults_file(user->text, user->name, name);
  if (project) resolved.resolver->apply_defaults_file(project->text, project->name, name);
  if (given) resolved.resolver->apply_toml(given->text, given->name);
  if (arguments.quick) apply_quick(resolved, context);
  apply_environment_and_flags(resolved, arguments, context, output);
  return resolved;
}

ResolvedRecipe resolve_run_text(const std::string& toml, const std::string& name, const Arguments& arguments,
                                const CliContext& context, const Output& output) {
  const TextFile file{name, toml};
  ResolvedRecipe resolved = make_resolved(recipe_of_file(file, context), context);
  resolved.resolver->apply_toml(file.text, file.name);
  apply_environment_and_flags(resolved, arguments, context, output);
  return resolved;
}

ResolvedRecipe resolve_run(const fs::path& recipe_toml, const Arguments& arguments, const CliContext& context,
                           const Output& output, const PresetsOf& presets, const std::string& preset_name) {
  const TextFile file = read_text(recipe_toml);
  ResolvedRecipe resolved = make_resolved(recipe_of_file(file, context), context);
  resolved.resolver->apply_toml(file.text, file.name);
  if (presets)
    for (const auto& [key, value] : presets(*resolved.settings)) resolved.resolver->set(key, value, preset_name);
  apply_environment_and_flags(resolved, arguments, context, output);
  return resolved;
}

std::string recipe_of_run(const RunFolder& run) {
  if (!run.recipe().empty()) return run.recipe();
  const auto file = read_if_there(run.recipe_toml());
  return file ? recipe_named_in(file->text, file->name).value_or("") : "";
}

fs::path runs_root(const Arguments& arguments) {
  if (arguments.runs_root) return *arguments.runs_root;
  if (const auto root = variable("TANDEM_RUNS_ROOT")) return *root;
  for (const auto& file : {project_file(), user_file()}) {
    if (!file) continue;
    if (const auto root = runs_root_named_in(file->text, file->name)) return *root;
  }
  return "runs";
}

}  // namespace tandem
