#include "cli/help.h"

#include <fmt/format.h>

#include <map>

namespace tandem {
namespace {

constexpr std::string_view kExitCodes =
    "exit codes: 0 done, 1 failed, 2 usage or settings, 3 check failed, 4 out of memory, 5 checkpoint unusable,\n"
    "  6 peer lost, 7 stopped by a guard (NaN, heat, power), 75 stopped and resumable, 130 Ctrl-C, 143 SIGTERM\n";

struct Row {
  std::string left, help, value;
};

std::string option_left(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  const std::string value = option.get_type_size() == 0 ? "" : option.get_type_name();
  return fmt::format("{}{}{}", fmt::join(names, ", "), value.empty() ? "" : " ", value);
}

std::string rows_text(const std::vector<Row>& rows) {
  size_t width = 0;
  for (const Row& row : rows) width = std::max(width, std::min<size_t>(row.left.size(), 34));
  std::string text;
  for (const Row& row : rows) {
    text += fmt::format("  {:<{}}", row.left, width);
    if (row.left.size() > width) text += fmt::format("\n  {:<{}}", "", width);
    text += fmt::format("  {}{}\n", row.help, row.value.empty() ? "" : fmt::format("  [{}]", row.value));
  }
  return text;
}

// "200, default of RECIPE"; "500, tandem.toml:3"; nothing for a value that is not set.
std::string live_value(const KeyInfo& key, const std::string& recipe) {
  if (key.value == "\"\"" || key.value == "0") return "";
  return fmt::format("{}, {}", key.value, key.source == "default" ? "default of " + recipe : key.source);
}

std::string usage(const CLI::App& app, const std::string& full_name) {
  std::string text = "usage: " + full_name;
  if (!app.get_subcommands([](const CLI::App*) { return true; }).empty())
    text += app.get_require_subcommand_min() ? " <command>" : " [command]";
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    if (const std::string words = option->get_type_name(); !words.empty()) {  // RecipeVerb::usage
      text += " " + words;
      continue;
    }
    const std::string name = option->get_name();
    const bool many = option->get_items_expected_max() > 2;
    for (int i = 0; i < (many ? 1 : option->get_items_expected_max()); ++i)
      text += option->get_items_expected_min() > 0 ? " <" + name + ">" : " [" + name + "]";
    if (many) text += "...";
  }
  return text + " [flags]\n";
}

}  // namespace

std::string help_text(const CLI::App& app, const std::string& full_name, const std::vector<RecipeInfo>& recipes,
                      const Resolver* resolver, const std::string& recipe, bool all_keys) {
  std::map<std::string, KeyInfo> keys;
  if (resolver) {
    for (const KeyInfo& key : resolver->keys()) keys[key.name] = key;
  }
  std::map<const CLI::Option*, std::string> key_of;
  for (const SettingFlag& flag : setting_flags(recipes)) {
    const std::string& names = flag.names;
    if (const auto* option = app.get_option_no_throw(names.substr(0, names.find(',')))) key_of[option] = flag.key;
  }

  std::vector<Row> commands, arguments, flags;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back({sub->get_name(), sub->get_description(), ""});
  }
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      arguments.push_back({option->get_name(), option->get_description(), ""});
      continue;
    }
    const auto key = key_of.find(option);
    const auto info = key == key_of.end() ? keys.end() : keys.find(key->second);
    flags.push_back(
        {option_left(*option), option->get_description(), info == keys.end() ? "" : live_value(info->second, recipe)});
  }

  std::string text = usage(app, full_name) + app.get_footer() + "\n" + app.get_description() + "\n";
  if (!commands.empty()) text += "\ncommands:\n" + rows_text(commands);
  if (!arguments.empty()) text += "\narguments:\n" + rows_text(arguments);
  text += "\nflags (- and _ are alike in their names):\n" + rows_text(flags);
  if (all_keys && resolver) {
    std::vector<Row> rows;
    for (const KeyInfo& key : resolver->keys()) {
      rows.push_back({key.name + " = " + key.value, key.help + (key.allowed.empty() ? "" : "; " + key.allowed), ""});
    }
    text += fmt::format("\nsettings of {} (--set key=value, TANDEM_KEY=value, or lines of a .toml file):\n{}", recipe,
                        rows_text(rows));
  }
  return text + "\n" + std::string(kExitCodes);
}

}  // namespace tandem
