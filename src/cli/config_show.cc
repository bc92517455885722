// cli/config_show.cc -- `tandem config show`: the settings a recipe would run with, and what set them.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "command/sources.h"

namespace tandem {
namespace {

nlohmann::json described(const std::vector<KeyInfo>& keys) {
  nlohmann::json list = nlohmann::json::array();
  for (const KeyInfo& key : keys) {
    list.push_back({{"key", key.name},
                    {"type", key.type},
                    {"default", key.default_value},
                    {"source", key.source},
                    {"allowed", key.allowed},
                    {"help", key.help},
                    {"decides_result", key.role == Role::kResult}});
  }
  return list;
}

// The resolved text without its "# source" notes; to_toml() writes them after three spaces, one value a line.
std::string without_notes(const ResolvedRecipe& recipe) {
  std::string text = fmt::format("recipe = \"{}\"\n", recipe.name), table;
  for (const bool top : {true, false}) {
    for (const KeyInfo& key : recipe.resolver->keys()) {
      const size_t dot = key.name.find('.');
      if ((dot == std::string::npos) != top) continue;
      if (!top && key.name.substr(0, dot) != table) {
        table = key.name.substr(0, dot);
        text += fmt::format("\n[{}]\n", table);
      }
      text += fmt::format("{} = {}\n", top ? key.name : key.name.substr(dot + 1), key.value);
    }
  }
  return text;
}

}  // namespace

int run_config_show(const Command& command) {
  const ResolvedRecipe recipe = resolve_recipe(command.subject(), command.arguments, command.context, command.output);
  if (command.output.json()) {
    nlohmann::json sources = nlohmann::json::object();
    for (const KeyInfo& key : recipe.resolver->keys()) sources[key.name] = key.source;
    command.output.object({{"recipe", recipe.name},
                           {"values", recipe.resolver->to_json()},
                           {"sources", sources},
                           {"keys", described(recipe.resolver->keys())}});
  } else {
    command.output.data(command.arguments.origin ? recipe.resolver->to_toml(recipe.name) : without_notes(recipe));
  }
  return 0;
}

}  // namespace tandem
