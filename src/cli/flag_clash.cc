#include "cli/flag_clash.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/app.h"

namespace tandem {
namespace {

using Words = std::vector<std::string>;

std::vector<Words> commands_with(const SettingFlag& flag) {
  std::vector<Words> commands = {{"train"}};
  if (flag.on != SettingFlag::On::kTrainOnly) commands.insert(commands.end(), {{"resume"}, {"config", "show"}});
  if (flag.on == SettingFlag::On::kPlanToo) commands.push_back({"plan"});
  return commands;
}

}  // namespace

std::string flag_clash(const CliContext& context) {
  CliContext plain = context;
  for (RecipeInfo& recipe : plain.recipes) recipe.flags.clear();
  Arguments scratch;
  const auto root = make_app(plain, scratch);
  for (const RecipeInfo& recipe : context.recipes)
    for (const SettingFlag& flag : recipe.flags)
      for (const Words& command : commands_with(flag))
        for (const std::string& name : names_of_flag(flag.names)) {
          const CLI::Option* const there = find_command(*root, command)->get_option_no_throw(name);
          // Flags that every recipe has are there too: a second one for the same key is no clash.
          const bool setting = std::ranges::any_of(setting_flags({}), [&](const SettingFlag& of_all) {
            return of_all.key == flag.key && std::ranges::count(names_of_flag(of_all.names), name) > 0;
          });
          if (there && !setting)
            return fmt::format("the flag {} of recipe {} is a flag of `{} {}` already: give it another name", name,
                               recipe.name, context.program, fmt::join(command, " "));
        }
  return "";
}

}  // namespace tandem
