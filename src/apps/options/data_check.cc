#include "apps/options/data_check.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/printable.h"
#include "command/command.h"
#include "recipes/options_market.h"

namespace tandem {
namespace {

std::string counted(int64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
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

}  // namespace

int check_options_data(const Command& command) {
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

}  // namespace tandem
