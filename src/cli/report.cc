// cli/report.cc -- `tandem report`: a run's folder as one HTML page.
#include "telemetry/report.h"

#include <fmt/format.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "cli/commands.h"
#include "command/out_file.h"
#include "command/sources.h"
#include "jobs/agents_file.h"
#include "jobs/set_report.h"
#include "runs/run_folder.h"

namespace tandem {

int run_report(const Command& command) {
  const RunFolder run = RunFolder::find(runs_root(command.arguments), command.subject("last"));
  std::filesystem::path file = command.arguments.output;
  const std::vector<SetRun> set = runs_of_set(run.dir());
  try {
    for (const SetRun& one : set)  // the page of a set links theirs
      if (std::filesystem::exists(one.dir / "metrics.jsonl")) write_report(one.dir);
    if (file.empty()) {
      file = set.empty() ? write_report(run.dir()) : write_set_report(run.dir());
    } else {
      write_out_file(file.string(), set.empty() ? make_report(run.dir()) : make_set_report(run.dir()), "--output");
    }
  } catch (const IoError& error) {
    const int number = error.error_number();
    if (number != ENOENT && number != EACCES && number != EROFS && number != EISDIR) throw;
    throw ConfigError(error.what(), error.why(), "choose a file in a folder that exists and is writable with --output");
  }
  if (command.output.json()) {
    command.output.object({{"file", file.string()}, {"run", run.id()}});
  } else {
    say_where(command.output, file);
  }
  return 0;
}

}  // namespace tandem
