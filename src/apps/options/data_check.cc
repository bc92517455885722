#include "apps/options/data_check.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "apps/options/options_data.h"
#include "base/errors.h"
#include "base/printable.h"
#include "command/command.h"
#include "market/dates.h"
#include "recipes/options_market.h"

namespace tandem {
namespace {

std::string counted(int64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// How training would cut them; words where it would refuse.
struct UsualFolds {
  std::vector<std::string> words;
  bool one_trains = false, walk_forward_trains = false;
};

std::string refusal(const ConfigError& error) {
  return fmt::format("{}: {}; {}", error.what(), error.why(), error.todo());
}

UsualFolds usual_folds(const MarketData& data, OptionsSettings settings) {
  UsualFolds usual;
  try {
    const MarketFold fold = folds_of(data, settings).front();
    usual.words.push_back(
        fmt::format("a run learns until {}, its best step is chosen from {} to {}, it is judged from "
                    "{} to {}",
                    date_text(fold.train_last), date_text(fold.validation_first), date_text(fold.validation_last),
                    date_text(fold.test_first), date_text(fold.test_last)));
    for (const std::string& left_out : fold.left_out) usual.words.push_back("it leaves out " + left_out);
    usual.one_trains = true;
  } catch (const ConfigError& error) {
    usual.words.push_back("`train options` would refuse: " + refusal(error));
  }
  settings.walk_forward = settings.folds;
  try {
    folds_of(data, settings);
    usual.walk_forward_trains = true;
  } catch (const ConfigError& error) {
    usual.words.push_back(fmt::format("`--walk-forward {}` would be refused: {}", settings.folds, refusal(error)));
  }
  return usual;
}

nlohmann::json json_of(const MarketCheck& check, const UsualFolds& usual, const std::string& folder) {
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
          {"folds", usual.words},
          {"usual_fold_trains", usual.one_trains},
          {"walk_forward_trains", usual.walk_forward_trains},
          {"usable", check.findings.errors() == 0}};
}

}  // namespace

int check_options_data(const Command& command) {
  const std::string& folder = command.arguments.subjects[2];
  OptionsSettings settings;
  settings.symbols = command.arguments.text("symbols");
  settings.python = command.arguments.text("python");
  settings.accept_jumps = command.arguments.has("accept-jumps");
  settings.data = folder;
  const MarketCheck check = check_market_folder(market_source_of(settings));
  const UsualFolds usual = check.data ? usual_folds(*check.data, settings) : UsualFolds{};
  const int64_t errors = check.findings.errors(), warnings = check.findings.warnings();
  if (command.output.json()) {
    command.output.object(json_of(check, usual, folder));
    return errors > 0 ? static_cast<int>(ExitCode::kUsage) : 0;
  }
  command.output.data(check.findings.render());
  command.output.say(check.summary);
  for (const std::string& word : usual.words) command.output.say(word);
  if (errors > 0)
    throw ConfigError(fmt::format("{} in {}", counted(errors, "error"), printable(folder)),
                      "training refuses data with an error, and never mends it by itself",
                      "correct the lines above; what is a warning may stay");
  command.output.say(!usual.one_trains ? "usable with other folds than the usual ones"
                     : warnings > 0    ? fmt::format("usable, with {}", counted(warnings, "warning"))
                                       : "usable");
  return 0;
}

}  // namespace tandem
