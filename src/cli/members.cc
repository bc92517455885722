// cli/members.cc -- `tandem join` and `tandem leave`: more or fewer workers for a run that is going on.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/shell_word.h"
#include "cli/commands.h"
#include "command/sources.h"
#include "config/devices.h"
#include "jobs/agents_file.h"
#include "launch/requests.h"
#include "runs/run_folder.h"
#include "telemetry/run_summary.h"

namespace tandem {
namespace {

constexpr double kAnswerSeconds = 20;

RunFolder running_one(const Command& command) {
  const RunFolder run = RunFolder::find(runs_root(command.arguments), command.subject("last"));
  if (const std::vector<SetRun> jobs = runs_of_set(run.dir()); !jobs.empty())
    throw ConfigError(
        fmt::format("{} is a set of runs", run.id()), "it spreads its devices over its agents by itself",
        fmt::format("name one of its agents, as {}; or stop it and `{} resume {}` with other --devices",
                    shell_word(jobs.front().dir.string()), command.context.program, shell_word(run.id())));
  const std::string status = present_status(read_run_json(run.dir()), run.dir());
  if (status != "running" && status != "created")
    throw ConfigError(fmt::format("{} is not running", run.id()), fmt::format("its status is: {}", status),
                      fmt::format("go on with it by `{} resume {}{}`", command.context.program, shell_word(run.id()),
                                  status == "done" ? " --steps <more than it has done>" : ""));
  return run;
}

// The launcher's refusal is the user's error.
nlohmann::json ask(const RunFolder& run, const nlohmann::json& request) {
  const nlohmann::json answer = ask_run(run.dir(), request, kAnswerSeconds);
  if (answer.contains("error")) throw ConfigError(answer.at("error"), answer.value("why", ""), answer.value("do", ""));
  return answer;
}

}  // namespace

int run_join(const Command& command) {
  std::string devices;
  for (const Override& given : command.arguments.overrides)
    if (given.key == "devices") devices = given.value;
  if (devices.empty())
    throw ConfigError("join needs --devices", "it starts one more worker for each device",
                      fmt::format("write `{} join last --devices cpu:1`", command.context.program));
  parse_devices(devices, command.context.machine);  // refused here, with its own words
  const RunFolder run = running_one(command);
  const nlohmann::json answer = ask(run, {{"do", "join"}, {"devices", devices}, {"version", command.context.version}});
  const std::vector<int> ranks = answer.at("ranks");
  if (command.output.json()) command.output.object({{"run", run.id()}, {"ranks", ranks}});
  command.output.say(fmt::format("rank{} {} of {} start{}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, " "),
                                 run.id(), ranks.size() == 1 ? "s" : ""));
  return 0;
}

int run_leave(const Command& command) {
  if (!command.arguments.rank)
    throw ConfigError("leave needs --rank", "it says which worker gives its shards away",
                      fmt::format("write `{} leave last --rank 2`; the run's first lines name its workers from 0 on",
                                  command.context.program));
  const RunFolder run = running_one(command);
  ask(run, {{"do", "leave"}, {"rank", *command.arguments.rank}, {"version", command.context.version}});
  if (command.output.json()) command.output.object({{"run", run.id()}, {"rank", *command.arguments.rank}});
  command.output.say(fmt::format("rank {} of {} leaves at the next step boundary", *command.arguments.rank, run.id()));
  return 0;
}

}  // namespace tandem
