#include "cli/parse_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/Error.hpp>
#include <algorithm>

#include "base/errors.h"
#include "cli/app.h"
#include "config/recipe_list.h"
#include "config/spelling.h"

namespace tandem {
namespace {

// --num_gpus=2 becomes --num-gpus=2; the value after '=' stays as it is.
std::string dashed(std::string word) {
  if (!word.starts_with("--")) return word;
  const size_t end = std::min(word.find('='), word.size());
  std::replace(word.begin() + 2, word.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  return word;
}

// What can follow --resume and cannot be a recipe, so that both `train --resume RECIPE` and `train RECIPE --resume
// runs/x` mean what they look like.
bool names_a_run(const std::string& word) {
  return word == "last" || word.find('/') != std::string::npos || word.starts_with(".");
}

// A flag that may stand alone gets its value here: CLI11 would take the next word, whatever it is.
void complete_bare(std::vector<std::string>& words, const std::string& flag, const std::string& alone,
                   bool (*is_value)(const std::string&)) {
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (words[i] != flag) continue;
    const bool has_value = i + 1 < words.size() && is_value(words[i + 1]);
    words[i] = flag + "=" + (has_value ? words[i + 1] : alone);
    if (has_value) words.erase(words.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
}

std::vector<std::string> flag_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  return names;
}

std::string full_name(const CliContext& context, const std::vector<std::string>& command) {
  return fmt::format("{}{}{}", context.program, command.empty() ? "" : " ", fmt::join(command, " "));
}

[[noreturn]] void refuse_extra(const CLI::App& app, const std::string& word, const std::string& name) {
  const bool is_flag = word.starts_with("-");
  const std::string plain = word.substr(0, word.find('='));
  const auto candidates = is_flag ? flag_names(app) : command_names(app);
  const std::string near = nearest_word(plain, candidates);
  const std::string todo =
      near.empty() ? fmt::format("see `{} --help`", name) : fmt::format("did you mean `{}`?", near);
  const std::string shown = printable(is_flag ? plain : word);
  if (is_flag)
    throw ConfigError(fmt::format("`{}` has no flag {}", name, shown), "an unknown flag is never ignored", todo);
  if (candidates.empty()) {
    throw ConfigError(fmt::format("`{}` does not know what to do with \"{}\"", name, shown),
                      "that is one word too many", todo);
  }
  throw ConfigError(fmt::format("`{}` has no command \"{}\"", name, shown),
                    fmt::format("the commands are: {}", fmt::join(candidates, ", ")), todo);
}

// The value that the line gives a flag; empty: none.
std::string value_on_line(const std::vector<std::string>& words, const std::string& flag) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].starts_with(flag + "=")) return words[i].substr(flag.size() + 1);
    if (words[i] == flag && i + 1 < words.size()) return words[i + 1];
  }
  return "";
}

// The names of flags and words in a message of the parser's, as written there.
std::vector<std::string> names_in(const CLI::App& app, const std::string& text) {
  std::vector<std::pair<size_t, std::string>> found;
  for (const CLI::Option* option : app.get_options()) {
    std::vector<std::string> names;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    if (option->get_positional()) names.push_back(option->get_name());
    for (const std::string& name : names) {
      const size_t at = text.find(name);
      const auto inside = [&](size_t i) { return i < text.size() && (std::isalnum(text[i]) || text[i] == '-'); };
      if (at != std::string::npos && !inside(at + name.size()) && (at == 0 || !inside(at - 1)))
        found.emplace_back(at, name);
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names;
  for (const auto& [at, name] : found) names.push_back(name);
  return names;
}

// What CLI11 found, in our words: its own are those of its source.
[[noreturn]] void refuse(const CLI::ParseError& error, const CLI::App& app, const std::vector<std::string>& words,
                         const std::string& name) {
  const std::string said = error.what(), see = fmt::format("see `{} --help`", name);
  const std::vector<std::string> names = names_in(app, said);
  const std::string flag = names.empty() ? "" : names.front();
  const std::string value = printable(value_on_line(words, flag));
  if (dynamic_cast<const CLI::ExcludesError*>(&error) && names.size() > 1)
    throw ConfigError(fmt::format("{} and {} were both given", names[0], names[1]), "each asks for something else",
                      fmt::format("leave one of them out; {}", see));
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) && said.find("override") != std::string::npos)
    throw ConfigError(fmt::format("{} takes no value", flag), fmt::format("\"{}\" was given to it", value),
                      fmt::format("write {} alone", flag));
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) && flag.starts_with("-"))
    throw ConfigError(fmt::format("{}: {} needs a value", name, flag), "the command line could not be understood", see);
  if (dynamic_cast<const CLI::ConversionError*>(&error) && !flag.empty()) {
    const CLI::Option* const option = app.get_option_no_throw(flag);
    if (option && option->get_expected_min() == 0)
      throw ConfigError(fmt::format("{} takes no value", flag), fmt::format("\"{}\" was given to it", value),
                        fmt::format("write {} alone", flag));
    throw ConfigError(fmt::format("{} {}: no number", flag, value), "it takes one", see);
  }
  if (dynamic_cast<const CLI::ValidationError*>(&error) && !flag.empty()) {
    const size_t open = said.find('{'), close = said.find('}');
    if (open == std::string::npos || close == std::string::npos)
      throw ConfigError(fmt::format("{}: {}", flag, printable(said.substr(said.find(": ") + 2))),
                        "the command line could not be understood", see);
    const std::string choices = said.substr(open + 1, close - open - 1);
    const std::string wrong = flag.starts_with("-") ? value : printable(words.back());
    throw ConfigError(fmt::format("{} can't be \"{}\"", flag, wrong),
                      fmt::format("it is one of {}", fmt::join(names_of_flag(choices), ", ")), see);
  }
  if (const CLI::Option* const option = app.get_option_no_throw(flag);
      dynamic_cast<const CLI::ArgumentMismatch*>(&error) && option && said.find("At Most") != std::string::npos)
    throw ConfigError(fmt::format("`{}` was given too many words", name),
                      fmt::format("it takes at most {}; a word with blanks stands in quotation marks",
                                  option->get_items_expected_max()),
                      see);
  if (!flag.empty() && !flag.starts_with("-"))
    throw ConfigError(fmt::format("`{}` needs the word {}", name, flag), "it is not there, or not often enough", see);
  throw ConfigError(fmt::format("`{}`: the command line could not be understood", name),
                    flag.empty() ? "its words do not fit together" : fmt::format("{} does not fit", flag), see);
}

// Before CLI11 parses: it would take the value of an unknown flag for a word of its own and complain of that instead.
void refuse_unknown_flags(const std::vector<std::string>& words, const CLI::App& root, const CliContext& context) {
  const CLI::App* app = &root;
  std::vector<std::string> path, known = flag_names(root);
  for (const std::string& word : words) {
    if (word == "--") return;
    if (!word.starts_with("-")) {
      const CLI::App* next = find_command(*app, {word});
      if (next == app) continue;
      app = next;
      path.push_back(word);
      const auto more = flag_names(*app);
      known.insert(known.end(), more.begin(), more.end());
    } else if (word.starts_with("--") &&
               std::find(known.begin(), known.end(), word.substr(0, word.find('='))) == known.end()) {
      refuse_extra(*app, word, full_name(context, path));
    }
  }
}

// Help is found before anything is parsed, so that it is there for a line that is wrong, too.
void look_for_help(const std::vector<std::string>& words, const CLI::App& root, Arguments& arguments) {
  const CLI::App* app = &root;
  for (const std::string& word : words) {
    if (word == "--") break;
    if (word == "--help" || word == "-h") arguments.help = true;
    if (word == "--version" && app == &root) arguments.version = true;
    if (word.starts_with("-")) continue;
    const CLI::App* next = find_command(*app, {word});
    if (next != app) {
      arguments.command.push_back(word);
      app = next;
    } else if (app != &root) {
      arguments.subjects.push_back(word);
    }
  }
  if (app == &root && !words.empty() && words[0] == "help") arguments.help = true;
}

}  // namespace

Arguments parse_arguments(int argc, const char* const* argv, const CliContext& context) {
  std::vector<std::string> words;
  bool flags_may_come = true;
  for (int i = 1; i < argc; ++i) {
    flags_may_come = flags_may_come && std::string_view(argv[i]) != "--";
    words.push_back(flags_may_come ? dashed(argv[i]) : argv[i]);
  }
  complete_bare(words, "--resume", "last", names_a_run);
  complete_bare(words, "--exact", "require",
                [](const std::string& word) { return word == "require" || word == "aim"; });
  for (const SettingFlag& flag : setting_flags(context.recipes)) {
    if (flag.value_name != kSwitchValue) continue;
    for (const std::string& name : names_of_flag(flag.names))
      complete_bare(words, name, "true", [](const std::string& word) { return word == "true" || word == "false"; });
  }

  Arguments arguments;
  const auto root = make_app(context, arguments);
  look_for_help(words, *root, arguments);
  if (arguments.help || arguments.version) return arguments;
  arguments.command.clear();
  arguments.subjects.clear();
  refuse_unknown_flags(words, *root, context);
  const std::vector<std::string> line = words;

  const CLI::App* app = root.get();
  const auto descend = [&] {
    arguments.command.clear();
    app = root.get();
    while (!app->get_subcommands().empty()) {
      app = app->get_subcommands().front();
      arguments.command.push_back(app->get_name());
    }
  };
  try {
    std::reverse(words.begin(), words.end());  // CLI11 takes a vector from its end
    root->parse(words);
    descend();
  } catch (const CLI::ExtrasError&) {
    descend();
    const auto extra = root->remaining(true);
    refuse_extra(*app, extra.empty() ? "" : extra.front(), full_name(context, arguments.command));
  } catch (const CLI::ParseError& error) {
    descend();
    refuse(error, *app, line, full_name(context, arguments.command));
  }
  return arguments;
}

}  // namespace tandem
