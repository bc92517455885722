// cli/runs.cc -- `tandem runs list|show|compare|best|rm|prune|rebuild`, over the index of all runs.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/printable.h"
#include "cli/commands.h"
#include "cli/runs_removal.h"
#include "command/sources.h"
#include "runs/index.h"
#include "telemetry/atomic_file.h"

namespace tandem {
namespace {

int terminal_width() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20) return size.ws_col;
  if (const char* columns = std::getenv("COLUMNS")) {
    if (const int width = std::atoi(columns); width > 20) return width;
  }
  return 100;
}

int list(const Command& command, RunIndex& index) {
  const Arguments& arguments = command.arguments;
  if (arguments.limit && *arguments.limit < 1)
    throw ConfigError("--limit must be at least 1", "it is the number of runs shown", "leave it out for all");
  const auto rows = index.list({arguments.filter_recipe, arguments.filter_status, arguments.limit.value_or(0)});
  if (command.output.json()) {
    command.output.object({{"runs", to_json(rows)}});
  } else if (command.output.quiet()) {
    for (const RunRow& row : rows) command.output.data(printable(row.id) + "\n");
  } else {
    command.output.data(list_text(rows, terminal_width()));
  }
  return 0;
}

int show_one(const Command& command, const RunRow& row) {
  if (command.output.json()) {
    command.output.object({{"run", to_json(row)}});
  } else {
    command.output.data(show_text(row));
    const auto judged =
        nlohmann::json::parse(read_small_file(row.dir / "explain.json", 1 << 20).value_or(""), nullptr, false);
    if (judged.is_object() && judged.contains("verdict") && judged["verdict"].is_string())
      command.output.data(fmt::format("speed\n  {}\n", printable(judged["verdict"].get<std::string>())));
  }
  return 0;
}

}  // namespace

int run_runs(const Command& command) {
  const std::string verb = command.arguments.command.size() > 1 ? command.arguments.command[1] : "list";
  if (verb == "rm") return run_runs_rm(command);
  if (verb == "prune") return run_runs_prune(command);
  RunIndex index(runs_root(command.arguments));
  if (verb == "show") return show_one(command, index.show(command.subject("last")));
  if (verb == "best") {
    return show_one(command,
                    index.best(command.subject("loss"), command.arguments.filter_recipe, command.arguments.order));
  }
  if (verb == "compare") {
    if (command.arguments.subjects.size() != 2)
      throw ConfigError(
          "which two runs?", "it sets one run beside another",
          fmt::format("name them by id or folder, as in `{} runs compare a1b2c3 last`; `{} runs` lists them",
                      command.context.program, command.context.program));
    const auto comparison = index.compare(command.arguments.subjects[0], command.arguments.subjects[1]);
    if (command.output.json()) {
      command.output.object({{"comparison", to_json(comparison)}});
    } else {
      command.output.data(compare_text(comparison, terminal_width()));
    }
    return 0;
  }
  if (verb == "rebuild") {
    const int64_t count = index.rebuild();
    if (command.output.json()) {
      command.output.object({{"runs", count}});
    } else {
      command.output.say(fmt::format("{} runs in the index", count));
    }
    return 0;
  }
  return list(command, index);
}

}  // namespace tandem
