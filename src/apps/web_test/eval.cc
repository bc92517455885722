// apps/web_test/eval.cc -- `tandem eval`: how good the agents of a run are, as a table, as JSON and as a page.
#include "apps/web_test/eval.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "apps/web_test/web_evaluation.h"
#include "base/file_system.h"
#include "command/command.h"
#include "command/sources.h"
#include "recipes/web_environment.h"
#include "runs/run_folder.h"
#include "telemetry/atomic_file.h"
#include "telemetry/report.h"

namespace tandem {

namespace fs = std::filesystem;

EvaluationPlan evaluation_plan(const Arguments& arguments) {
  EvaluationPlan plan;
  plan.episodes = arguments.whole("episodes", plan.episodes);
  if (plan.episodes < 2 || plan.episodes > 1'000'000)
    throw ConfigError(fmt::format("--episodes {}: no number of episodes to judge by", plan.episodes),
                      "an interval needs 2, and 1,000,000 fill a gigabyte", "leave it out for 1000");
  const int64_t seed = arguments.whole("seed", 1);
  if (seed < 0) throw ConfigError(fmt::format("--seed {} is below 0", seed), "seeds count from 0", "give another");
  plan.seed = static_cast<uint64_t>(seed);
  return plan;
}

namespace {

void record(const std::vector<AgentEvaluation>& results, const EvaluationPlan& plan, const fs::path& file) {
  std::string text;
  for (const AgentEvaluation& agent : results) {
    const TrainedAgent& trained = agent.own().trained;
    const WebEnvironment environment(web_agent_of(agent.agent));
    text += record_episodes(agent.agent, greedy_play(environment, *trained.net), plan.episodes, plan.seed);
  }
  try {
    replace_file(FileSystem::real(), file, text);
  } catch (const IoError& error) {
    throw ConfigError(error.what(), error.why(), "choose a file in a folder that exists and is writable with --record");
  }
}

int run_eval(const Command& command) {
  const Arguments& arguments = command.arguments;
  const EvaluationPlan plan = evaluation_plan(arguments);
  const RunFolder run = RunFolder::find(runs_root(arguments), command.subject("last"));
  AgentRuns runs = agent_runs_of(run.dir());
  if (const std::string agent = arguments.text("agent"); !agent.empty()) {
    const AgentRun only = find_agent(runs, agent);
    runs.agents = {only};
  }
  for (const AgentRun& agent : runs.agents)
    if (agent.replaced())
      command.output.detail(fmt::format("{}: {} stands for it (current.json)", agent.agent, agent.best.string()));
  const auto results = evaluate_agents(runs.agents, plan);
  for (const AgentEvaluation& agent : results)
    for (const MemberEvaluation& member : agent.members)
      for (const std::string& reason : member.trained.refused)
        command.output.warn(fmt::format("{}: passed over {}", member.trained.run.string(), reason));

  if (const std::string file = arguments.text("record"); !file.empty()) record(results, plan, file);
  nlohmann::json result = {{"run", run.id()},
                           {"dir", fs::absolute(run.dir()).string()},
                           {"episodes", plan.episodes},
                           {"seed", plan.seed},
                           {"agents", agents_json(results)}};
  std::string page;
  try {
    // The page reads it from the folder, so that `tandem report` keeps it.
    write_file_atomically(run.dir() / "evaluation.json", result.dump(2) + "\n", Durability::kProcessDeath);
    // A folder of several runs has a page of its own, about their training.
    const bool several = fs::exists(run.dir() / "agents.json");
    page = (run.dir() / (several ? "evaluation.html" : "report.html")).string();
    if (const std::string given = arguments.text("output"); !given.empty()) page = given;
    write_file_atomically(page, make_report(run.dir()), Durability::kProcessDeath);
  } catch (const IoError& error) {
    command.output.warn(fmt::format("the report was not written: {} ({})", error.what(), error.why()));
    page.clear();
  }
  if (command.output.json()) {
    result["file"] = page.empty() ? nlohmann::json() : nlohmann::json(page);
    command.output.object(result);
    return 0;
  }
  command.output.data(agents_table(results));
  command.output.say(
      fmt::format("{} greedy episodes each, seed {}; 0 is random play, 1 the solver", plan.episodes, plan.seed));
  if (!page.empty()) command.output.say(fmt::format("report {}", page));
  return 0;
}

}  // namespace

RecipeVerb eval_verb() {
  using Kind = VerbFlag::Kind;
  return {"eval",
          "how good the agents of a run are: 0 is random play, 1 the solver",
          run_eval,
          {{"--agent", "name", "this agent only"},
           {"--episodes", "n", "episodes for each policy [1000]", Kind::kWhole},
           {"--seed", "n", "luck of the episodes; training never draws it [1]", Kind::kWhole},
           {"-o,--output", "file", "the page with the plots [report.html or evaluation.html in the run's folder]"},
           {"--record", "file", "the episodes as JSON lines, to learn from (--experience)"}},
          {{"eval last", "every agent of the newest run, 1000 greedy episodes each"},
           {"eval last --agent analysis --episodes 5000", "one agent, a narrower interval"},
           {"eval last --json", "for scripts: {\"agents\": {\"analysis\": {\"score\": ...}}}"}}};
}

}  // namespace tandem
