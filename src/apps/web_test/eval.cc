// apps/web_test/eval.cc -- `tandem eval`: how good the agents of a run are, as a table, as JSON and as a page.
#include "apps/web_test/eval.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "apps/web_test/web_evaluation.h"
#include "command/command.h"
#include "command/out_file.h"
#include "command/sources.h"
#include "jobs/set_report.h"
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

constexpr size_t kLargestEvaluation = 1 << 20;

void record(const std::vector<AgentEvaluation>& results, const EvaluationPlan& plan, const fs::path& file) {
  std::string text;
  for (const AgentEvaluation& agent : results) {
    const TrainedAgent& trained = agent.own().trained;
    const WebEnvironment environment(web_agent_of(agent.agent));
    text += record_episodes(agent.agent, greedy_play(environment, *trained.net), plan.episodes, plan.seed);
  }
  write_out_file(file.string(), text, "--record");
}

// What goes into the run's folder: with --agent the figures of its other agents stay, each with its own `episodes`.
nlohmann::json with_earlier(nlohmann::json result, const fs::path& file, const std::vector<std::string>& agents) {
  const auto before = nlohmann::json::parse(read_small_file(file, kLargestEvaluation).value_or(""), nullptr, false);
  if (!before.is_object() || !before.contains("agents") || !before["agents"].is_object()) return result;
  for (const std::string& agent : agents)
    if (before["agents"].contains(agent) && !result["agents"].contains(agent))
      result["agents"][agent] = before["agents"][agent];
  return result;
}

int run_eval(const Command& command) {
  const Arguments& arguments = command.arguments;
  const EvaluationPlan plan = evaluation_plan(arguments);
  const RunFolder run = RunFolder::find(runs_root(arguments), command.subject("last"));
  AgentRuns runs = agent_runs_of(run.dir());
  const std::vector<std::string> names = runs.names();
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
    const fs::path file = run.dir() / "evaluation.json";
    write_file_atomically(
        file, with_earlier(result, file, names).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n",
        Durability::kProcessDeath);
    // A folder of several runs has a page of its own, about their training.
    const bool several = fs::exists(run.dir() / "agents.json");
    page = (run.dir() / (several ? "evaluation.html" : "report.html")).string();
    if (const std::string given = arguments.text("output"); !given.empty()) page = given;
    write_out_file(page, several ? make_evaluation_page(run.dir()) : make_report(run.dir()), "--output");
    if (several) write_set_report(run.dir());  // it shows the evaluation too, and links its page
  } catch (const Error& error) {
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
          "how good the agents of a run are: greedy episodes, mean return and score with their intervals",
          run_eval,
          {{"--agent", "name", "this agent only"},
           {"--episodes", "n", "episodes for each policy [1000; 100 in Python]", Kind::kWhole},
           {"--seed", "n", "luck of the episodes; training never draws it [1]", Kind::kWhole},
           {"-o,--output", "file", "the page with the plots [report.html or evaluation.html in the run's folder]"},
           {"--record", "file", "the episodes as JSON lines, to learn from (--experience)"}},
          {{"eval last", "every agent of the newest run, 1000 greedy episodes each"},
           {"eval last --agent analysis --episodes 5000", "one agent, a narrower interval"},
           {"eval last --json", "for scripts: {\"agents\": {\"analysis\": {\"score\": ...}}}"}}};
}

}  // namespace tandem
