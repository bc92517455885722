#include "cli/completion.h"

#include <fmt/format.h>

#include <functional>
#include <vector>

namespace tandem {
namespace {

// What may stand in the place of a command's word.
enum class Subject { kNone, kRecipe, kRun, kPath, kShell };

struct Flag {
  std::vector<std::string> shorts, longs;
  std::string help;
  bool takes_value;
};

struct Node {
  std::string path;  // "", "runs", "runs list"
  std::string help;
  std::vector<std::string> commands, command_help;
  std::vector<Flag> flags;
  Subject subject = Subject::kNone;
};

Subject subject_of(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    const std::string name = option->get_name();
    if (name == "recipe") return Subject::kRecipe;
    if (name == "run") return Subject::kRun;
    if (name == "shell") return Subject::kShell;
    if (name == "path") return Subject::kPath;
  }
  return Subject::kNone;
}

void collect(const CLI::App& app, const std::string& path, std::vector<Node>& nodes) {
  Node node{path, app.get_description(), {}, {}, {}, subject_of(app)};
  const auto subs = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* sub : subs) {
    node.commands.push_back(sub->get_name());
    node.command_help.push_back(sub->get_description());
  }
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) continue;
    node.flags.push_back(
        {option->get_snames(), option->get_lnames(), option->get_description(), option->get_expected_min() > 0});
  }
  nodes.push_back(std::move(node));
  for (const CLI::App* sub : subs) collect(*sub, path.empty() ? sub->get_name() : path + " " + sub->get_name(), nodes);
}

std::string identifier(std::string text) {
  for (char& c : text) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return text;
}

std::string quoted(const std::string& text) {  // for single quotes, in all three shells
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::vector<std::string> recipe_names(const CliContext& context) {
  std::vector<std::string> names;
  for (const RecipeInfo& recipe : context.recipes) names.push_back(recipe.name);
  return names;
}

// Words that are known now. Names of runs come when they are asked for, one a line, and are never parsed by the shell:
// a folder may be named `$(rm -r ~)`.
std::vector<std::string> subject_words(const Node& node, const CliContext& context) {
  switch (node.subject) {
    case Subject::kRecipe:
      return recipe_names(context);
    case Subject::kRun:
    case Subject::kPath:
      return {"last"};
    case Subject::kShell:
      return {"bash", "zsh", "fish"};
    case Subject::kNone:
      break;
  }
  return {};
}

bool names_runs(const Node& node) { return node.subject == Subject::kRun || node.subject == Subject::kPath; }
bool names_files(const Node& node) { return names_runs(node) || node.subject == Subject::kRecipe; }

std::string runs_command(const CliContext& context) {
  return fmt::format("{} runs list --quiet 2>/dev/null", context.program);
}

std::string quoted_words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + quoted(word);
  return text;
}

// Shared by bash and zsh: walk the words typed so far to the deepest command.
std::string walk(const std::vector<Node>& nodes, const std::string& words, const std::string& last) {
  std::vector<std::string> paths;
  for (const Node& node : nodes) {
    if (!node.path.empty()) paths.push_back(quoted(node.path));
  }
  return fmt::format(
      "  for word in {}; do\n"
      "    case \"${{command:+$command }}$word\" in\n"
      "      {}) command=\"${{command:+$command }}$word\" ;;\n"
      "    esac\n"
      "  done\n"
      "  {}\n",
      words, fmt::join(paths, "|"), last);
}

std::string bash_script(const std::vector<Node>& nodes, const CliContext& context) {
  const std::string name = identifier(context.program);
  std::string text = fmt::format(
      "# bash completion for {}\n_{}() {{\n  local word quoted command= cur=\"${{COMP_WORDS[COMP_CWORD]}}\"\n  "
      "COMPREPLY=()\n",
      context.program, name);
  text += walk(nodes, "\"${COMP_WORDS[@]:1:COMP_CWORD-1}\"", "local flags=() words=() runs= files=");
  text += "  case \"$command\" in\n";
  for (const Node& node : nodes) {
    std::vector<std::string> flags;
    for (const Flag& flag : node.flags) {
      for (const std::string& s : flag.shorts) flags.push_back("-" + s);
      for (const std::string& l : flag.longs) flags.push_back("--" + l);
    }
    std::vector<std::string> words = node.commands;
    for (const std::string& word : subject_words(node, context)) words.push_back(word);
    text += fmt::format("    {}) flags=({}); words=({}){}{} ;;\n", quoted(node.path), quoted_words(flags),
                        quoted_words(words), names_runs(node) ? "; runs=1" : "", names_files(node) ? "; files=1" : "");
  }
  // Not compgen -W, which expands its words as if they were typed. Quoted here, by printf: what readline quotes of
  // names of files (complete -o filenames) leaves a `$` as it is.
  text += fmt::format(
      "  esac\n"
      "  if [[ \"$cur\" == -* ]]; then words=(\"${{flags[@]}}\"); runs= files=; fi\n"
      "  if [[ -n \"$runs\" ]]; then\n"
      "    while IFS= read -r word; do words+=(\"$word\"); done < <({})\n"
      "  fi\n"
      "  for word in \"${{words[@]}}\"; do\n"
      "    printf -v quoted %q \"$word\"\n"
      "    if [[ \"$word\" == \"$cur\"* || \"$quoted\" == \"$cur\"* ]]; then COMPREPLY+=(\"$quoted\"); fi\n"
      "  done\n"
      "  if [[ -n \"$files\" ]]; then\n"
      "    while IFS= read -r word; do\n"
      "      if [[ -d \"$word\" ]]; then word+=/; compopt -o nospace 2>/dev/null; fi\n"
      "      printf -v quoted %q \"${{word#'~/'}}\"\n"
      "      if [[ \"$word\" == '~/'* ]]; then quoted=\"~/$quoted\"; fi\n"
      "      COMPREPLY+=(\"$quoted\")\n"
      "    done < <(compgen -f -- \"$cur\")\n"
      "  fi\n  return 0\n}}\n",
      runs_command(context));
  return text + fmt::format("complete -F _{} {}\n", name, context.program);
}

std::string zsh_pairs(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::string text;
  for (const auto& [word, help] : pairs) {
    std::string escaped;
    for (const char c : word) escaped += c == ':' ? std::string("\\:") : std::string(1, c);
    text += " " + quoted(escaped + ":" + help);
  }
  return text;
}

std::string zsh_script(const std::vector<Node>& nodes, const CliContext& context) {
  const std::string name = identifier(context.program);
  std::string text = fmt::format("#compdef {}\n_{}() {{\n  local word command=\n  local -a flags entries more\n",
                                 context.program, name);
  text += walk(nodes, "\"${(@)words[2,CURRENT-1]}\"", "local files=");
  text += "  case \"$command\" in\n";
  for (const Node& node : nodes) {
    std::vector<std::pair<std::string, std::string>> flags, commands;
    for (const Flag& flag : node.flags) {
      for (const std::string& s : flag.shorts) flags.emplace_back("-" + s, flag.help);
      for (const std::string& l : flag.longs) flags.emplace_back("--" + l, flag.help);
    }
    for (size_t i = 0; i < node.commands.size(); ++i) commands.emplace_back(node.commands[i], node.command_help[i]);
    // A line is a word; what stands in it is not expanded, and compadd quotes it.
    const std::string runs = names_runs(node) ? fmt::format(" ${{(f)\"$({})\"}}", runs_command(context)) : "";
    text += fmt::format("    {})\n      flags=({} )\n      entries=({} )\n      more=({}{}){} ;;\n", quoted(node.path),
                        zsh_pairs(flags), zsh_pairs(commands), quoted_words(subject_words(node, context)), runs,
                        names_files(node) ? "\n      files=1" : "");
  }
  text +=
      "  esac\n"
      "  if [[ \"$PREFIX\" == -* ]]; then _describe -o flag flags\n"
      "  else (( $#entries )) && _describe command entries; (( $#more )) && compadd -a more; [[ -n \"$files\" ]] && "
      "_files\n"
      "  fi\n}\n";
  return text + fmt::format("if [[ \"$funcstack[1]\" = _{0} ]]; then _{0} \"$@\"; else compdef _{0} {1}; fi\n", name,
                            context.program);
}

std::string fish_condition(const Node& node) {
  if (node.path.empty()) return "__fish_use_subcommand";
  const size_t space = node.path.find(' ');
  if (space == std::string::npos) return "__fish_seen_subcommand_from " + node.path;
  return fmt::format("__fish_seen_subcommand_from {}; and __fish_seen_subcommand_from {}", node.path.substr(0, space),
                     node.path.substr(space + 1));
}

std::string fish_script(const std::vector<Node>& nodes, const CliContext& context) {
  std::string text = fmt::format("# fish completion for {}\n", context.program);
  for (const Node& node : nodes) {
    const std::string start = fmt::format("complete -c {} -n {}", context.program, quoted(fish_condition(node)));
    for (size_t i = 0; i < node.commands.size(); ++i) {
      text += fmt::format("{} -f -a {} -d {}\n", start, node.commands[i], quoted(node.command_help[i]));
    }
    if (node.subject != Subject::kNone) {  // fish takes a line of the output as one word, unexpanded
      const std::string words = fmt::format("{}", fmt::join(subject_words(node, context), " "));
      const std::string runs = names_runs(node) ? fmt::format(" ({})", runs_command(context)) : "";
      text += fmt::format("{} -a {}\n", start, quoted(words + runs));
    }
    for (const Flag& flag : node.flags) {
      std::string names;
      for (const std::string& s : flag.shorts) names += " -s " + s;
      for (const std::string& l : flag.longs) names += " -l " + l;
      text += fmt::format("{}{}{} -d {}\n", start, names, flag.takes_value ? " -r" : "", quoted(flag.help));
    }
  }
  return text;
}

}  // namespace

std::string completion_script(const CLI::App& root, const CliContext& context, const std::string& shell) {
  std::vector<Node> nodes;
  collect(root, "", nodes);
  if (shell == "bash") return bash_script(nodes, context);
  return shell == "zsh" ? zsh_script(nodes, context) : fish_script(nodes, context);
}

}  // namespace tandem
