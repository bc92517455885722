#include "apps/options/data_check.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/printable.h"
#include "command/command.h"
#include "config/spelling.h"
#include "recipes/options_market.h"

namespace tandem {
namespace {

std::string counted(int64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

void check_words(const Command& command) {
  const std::vector<std::string>& words = command.arguments.subjects;
  const std::string usage = fmt::format("write `{} data check options DIR`", command.context.program);
  if (words.empty()) throw ConfigError("what about the data?", "`data` has one command, check", usage);
  if (words[0] != "check")
    throw ConfigError(fmt::format("`data` has no command \"{}\"", printable(words[0])), "it has one: check", usage);
  if (words.size() < 2 || words[1] != "options")
    throw ConfigError(words.size() < 2 ? "data of which recipe?"
                                       : fmt::format("there is no data check for \"{}\"", printable(words[1])),
                      "recipes that read files of data: options", usage);
  if (words.size() < 3 || words[2].empty())
    throw ConfigError("which folder?", "bars are files of a folder, one for each symbol", usage);
}

nlohmann::json json_of(const MarketCheck& check, const std::string& folder) {
  nlohmann::json findings = nlohmann::json::array();
  for (const DataFinding& one : check.findings.list())
    findings.push_back({{"level", one.level == FindingLevel::kError ? "error" : "warning"},
                        {"kind", one.kind},
                        {"file", printable(one.file)},
                        {"line", one.line > 0 ? nlohmann::json(one.line) : nlohmann::json()},
                        {"text", printable(one.text)}});
  return {{"folder", printable(folder)},
          {"recipe", "options"},
          {"summary", check.summary},
          {"errors", check.findings.errors()},
          {"warnings", check.findings.warnings()},
          {"findings", findings},
          {"usable", check.findings.errors() == 0}};
}

int check_data(const Command& command) {
  check_words(command);
  const std::string& folder = command.arguments.subjects[2];
  OptionsSettings settings;
  settings.symbols = command.arguments.text("symbols");
  settings.python = command.arguments.text("python");
  settings.accept_jumps = command.arguments.has("accept-jumps");
  const MarketCheck check = check_market_folder(folder, market_source_of(settings).folder_options);
  const int64_t errors = check.findings.errors(), warnings = check.findings.warnings();
  if (command.output.json()) {
    command.output.object(json_of(check, folder));
    return errors > 0 ? static_cast<int>(ExitCode::kUsage) : 0;
  }
  command.output.data(check.findings.render());
  command.output.say(check.summary);
  if (errors > 0)
    throw ConfigError(fmt::format("{} in {}", counted(errors, "error"), printable(folder)),
                      "training refuses data with an error, and never mends it by itself",
                      "correct the lines above; what is a warning may stay");
  command.output.say(warnings > 0 ? fmt::format("usable, with {}", counted(warnings, "warning")) : "usable");
  return 0;
}

}  // namespace

RecipeVerb data_verb() {
  RecipeVerb verb{"data", "checks files of data before a training: gaps, splits, duplicates, bad prices", check_data};
  verb.subject = "words";
  verb.subject_help = "check options, and the folder";
  verb.most_subjects = 3;
  verb.flags = {{"--symbols", "list", "those to look at, separated by commas", VerbFlag::Kind::kText},
                {"--accept-jumps", "", "what looks like a split is a warning", VerbFlag::Kind::kSwitch},
                {"--python", "file", "Python with pyarrow, for Parquet", VerbFlag::Kind::kText}};
  verb.examples = {{"data check options prices", "daily bars and option chains, every fault by file and line"},
                   {"data check options prices --json", "the same for scripts; exit code 2 if there is an error"}};
  return verb;
}

}  // namespace tandem
