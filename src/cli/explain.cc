// cli/explain.cc -- `tandem explain`: why a run is slow, from its records; while it runs, or after.
#include "explain/explain.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/printable.h"
#include "base/shell_word.h"
#include "cli/commands.h"
#include "command/sources.h"
#include "explain/read_run.h"
#include "explain/remedies.h"
#include "jobs/agents_file.h"
#include "runs/run_folder.h"
#include "runs/run_reader.h"
#include "telemetry/run_name.h"

namespace tandem {
namespace {

struct Judged {
  Evidence evidence;
  Explanation explanation;
  std::string id, name;  // of a run of a set: what people call it
};

Judged judge(const RunFolder& run, const std::string& program, const std::string& name = "") {
  Judged out{read_evidence(run.dir(), name.empty() ? run.id() : name), {}, run.id(), name};
  const std::string status = read_run(run.dir()).status;
  if (out.evidence.ranks.empty())
    throw ConfigError(
        fmt::format("{} has no record of where its time went", run.id()),
        "ranks.jsonl begins with a run's fourth step; runs of older versions have none",
        status == "done"
            ? fmt::format("it is done: train for a few seconds, with more steps: {} train {} --steps 1000", program,
                          shell_word((run.dir() / "recipe.toml").string()))
            : fmt::format("let it train for a few seconds: {} resume {}", program, shell_word(run.dir().string())));
  out.evidence.live = status == "running";
  out.evidence.done = status == "done";
  out.evidence.dir = run.dir().string();
  out.evidence.program = program;
  out.explanation = explain(out.evidence);
  return out;
}

nlohmann::json json_of_judged(const Judged& judged) {
  nlohmann::json out = to_json(judged.explanation);
  out["run"] = judged.id;
  if (!judged.name.empty()) out["name"] = judged.name;
  out["live"] = judged.evidence.live;
  return out;
}

}  // namespace

int run_explain(const Command& command) {
  const RunFolder run = RunFolder::find(runs_root(command.arguments), command.subject("last"));
  std::vector<Judged> all;
  std::set<std::filesystem::path> seen;             // several agents may share a run
  for (const SetRun& one : runs_of_set(run.dir()))  // of a set of jobs: one each
    if (std::filesystem::exists(one.dir / "ranks.jsonl") && seen.insert(one.dir).second)
      all.push_back(judge(RunFolder::open(one.dir), command.context.program, run_name(one.dir)));
  const bool set = !all.empty();
  if (!set) all.push_back(judge(run, command.context.program));
  if (command.output.json()) {
    if (!set) {
      command.output.object(json_of_judged(all.front()));
      return 0;
    }
    nlohmann::json runs = nlohmann::json::array();
    for (const Judged& one : all) runs.push_back(json_of_judged(one));
    command.output.object({{"run", run.id()}, {"runs", runs}});
    return 0;
  }
  std::string text;
  for (const Judged& one : all)
    text += (text.empty() ? "" : "\n") + (command.output.quiet() ? one.explanation.verdict() + "\n"
                                                                 : explanation_text(one.explanation, one.evidence));
  command.output.data(printable_lines(text));
  return 0;
}

}  // namespace tandem
