#include "apps/web_test/web_evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/errors.h"
#include "recipes/web_environment.h"
#include "world/product_history.h"
#include "world/scale.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

int32_t environment_of(const std::string& agent) {
  const int32_t number = web_agent_of(agent);
  if (number >= 0) return number;
  std::vector<std::string_view> names;
  for (const WebAgentInfo& info : kWebAgentTable) names.push_back(info.name);
  throw ConfigError(agent.empty() ? "this run is of no web-test agent"
                                  : fmt::format("there is no environment for an agent '{}'", agent),
                    fmt::format("the environments are those of {}", fmt::join(names, ", ")),
                    "name a run of web-agent or web-test; `tandem act` answers for any run of the DQN learner");
}

void check_fit(const TrainedAgent& trained, const Environment& environment) {
  if (trained.net->observation_size() == environment.observation_size() &&
      trained.net->actions() == environment.actions())
    return;
  throw CheckpointError(
      fmt::format("the weights of {} do not fit the environment of {}", trained.run.string(), trained.agent),
      fmt::format("they take {} numbers and know {} actions, the environment has {} and {}",
                  trained.net->observation_size(), trained.net->actions(), environment.observation_size(),
                  environment.actions()),
      "name a run that was trained in that environment");
}

// Runs them all on so many threads; the first error is thrown when all have ended.
void run_tasks(std::vector<std::function<void()>> tasks, int threads) {
  std::atomic<size_t> next{0};
  std::exception_ptr failed;
  std::mutex mutex;
  const auto work = [&] {
    for (size_t i = next++; i < tasks.size(); i = next++) {
      try {
        tasks[i]();
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failed) failed = std::current_exception();
      }
    }
  };
  const size_t all = threads > 0 ? static_cast<size_t>(threads) : std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::jthread> others;
  for (size_t i = 1; i < std::min(all, tasks.size()); ++i) others.emplace_back(work);
  work();
  others.clear();
  if (failed) std::rethrow_exception(failed);
}

Policy rule_play(int32_t agent) {
  return [agent](const std::byte* states, int64_t n, uint64_t, const ChosenActions& actions) {
    rule_web(agent, reinterpret_cast<const WebTestState*>(states), actions.discrete, n);
  };
}

Json line(const Evaluation& e) {
  const double half = kInterval * *e.score_error;
  return {
      {"score", *e.score}, {"low", *e.score - half}, {"high", *e.score + half}, {"return", e.mean}, {"error", e.error}};
}

Json frozen(const WebScale& scale, const WebReturn& value) {
  return {{"score", scale.score(value.mean)}, {"return", value.mean}, {"error", value.error}, {"frozen", true}};
}

std::string row(const std::string& name, const Evaluation& e, const std::string& note) {
  const double half = kInterval * *e.score_error;
  return fmt::format("{:<26} {:6.3f}   {:6.3f} to {:6.3f}   {:8.2f} +- {:<6.2f} {}\n", name, *e.score, *e.score - half,
                     *e.score + half, e.mean, e.error, note);
}

}  // namespace

size_t AgentEvaluation::best() const {
  size_t best = chosen;
  for (size_t i = 0; i < members.size(); ++i)
    if (members[i].result.mean > members[best].result.mean) best = i;
  return best;
}

std::string record_episodes(const std::string& agent, const Policy& policy, int64_t episodes, uint64_t seed) {
  const WebEnvironment environment(environment_of(agent));
  std::vector<std::string> lines(static_cast<size_t>(episodes));
  const auto write = [&](int64_t episode, const float* before, const TakenAction& action, const Outcome& outcome,
                         const float* after) {
    const size_t width = static_cast<size_t>(environment.observation_size());
    lines[static_cast<size_t>(episode)] += history_line(
        agent, {0, action.discrete, outcome.reward, outcome.end == End::kTerminated, {before, width}, {after, width}});
  };
  play(environment, policy, episodes, seed, write);
  std::string text;
  for (const std::string& episode : lines) text += episode;
  return text;
}

Evaluation play_net(const TrainedAgent& trained, const EvaluationPlan& plan) {
  const WebEnvironment environment(environment_of(trained.agent));
  check_fit(trained, environment);
  return play(environment, greedy_play(environment, *trained.net), plan.episodes, plan.seed);
}

std::vector<AgentEvaluation> evaluate_agents(const std::vector<AgentRun>& agents, const EvaluationPlan& plan) {
  std::vector<AgentEvaluation> out(agents.size());
  std::vector<std::function<void()>> tasks;
  for (size_t a = 0; a < agents.size(); ++a) {
    const AgentRun& from = agents[a];
    AgentEvaluation& to = out[a];
    const int32_t number = environment_of(from.agent);
    to.agent = from.agent;
    for (const auto& run : from.runs) {
      if (!plan.members && run != from.best) continue;
      if (run == from.best) to.chosen = to.members.size();
      to.members.push_back({load_agent(run, from.agent), {}});
      to.members.back().trained.agent = from.agent;
    }
    for (MemberEvaluation& member : to.members)
      tasks.push_back([&member, &plan] { member.result = play_net(member.trained, plan); });
    if (to.members.size() > 1)
      tasks.push_back([&to, &plan, number] {
        const WebEnvironment environment(number);
        std::vector<std::shared_ptr<const QFunction>> nets;
        for (const MemberEvaluation& member : to.members) {
          check_fit(member.trained, environment);
          nets.push_back(member.trained.net);
        }
        to.ensemble = play(environment, greedy_play(environment, QEnsemble(nets)), plan.episodes, plan.seed);
      });
    tasks.push_back([&to, &plan, number] {
      const WebEnvironment environment(number);
      to.random = play(environment, random_play(environment, plan.seed), plan.episodes, plan.seed);
      to.rule = play(environment, rule_play(number), plan.episodes, plan.seed);
    });
  }
  run_tasks(std::move(tasks), plan.threads);
  return out;
}

nlohmann::json agents_json(const std::vector<AgentEvaluation>& agents) {
  Json out = Json::object();
  for (const AgentEvaluation& agent : agents) {
    const WebScale& scale = kWebScale[web_agent_of(agent.agent)];
    const TrainedAgent& trained = agent.own().trained;
    Json one = line(agent.own().result);
    for (const auto& [name, value] : agent.own().result.terms) one["terms"][name] = value;
    one["episodes"] = agent.own().result.episodes;
    one["run"] = trained.run.string();
    one["step"] = trained.step;
    one["digest"] = trained.digest;
    one["lines"] = {{"random", line(agent.random)},
                    {"rule", line(agent.rule)},
                    {"solver", frozen(scale, scale.solver())},
                    {"oracle", frozen(scale, scale.oracle)}};
    for (const char* name : {"random", "rule", "solver", "oracle"}) one[name] = one["lines"][name]["score"];
    if (agent.members.size() > 1) {
      for (const MemberEvaluation& member : agent.members) {
        Json of_member = line(member.result);
        of_member["run"] = member.trained.run.string();
        of_member["digest"] = member.trained.digest;
        of_member["step"] = member.trained.step;
        one["members"][member.trained.run.filename().string()] = of_member;
      }
      one["best"] = agent.members[agent.best()].trained.run.filename().string();
      one["ensemble"] = line(*agent.ensemble);
    }
    out[agent.agent] = one;
  }
  return out;
}

std::string agents_table(const std::vector<AgentEvaluation>& agents) {
  std::string text = fmt::format("{:<26} {:>6}   {:^16}   {:>18}\n", "agent", "score", "95 % interval", "return");
  for (const AgentEvaluation& agent : agents) {
    const WebScale& scale = kWebScale[web_agent_of(agent.agent)];
    const auto& own = agent.own();
    text +=
        row(agent.agent, own.result, fmt::format("{}, step {}", own.trained.run.filename().string(), own.trained.step));
    for (size_t i = 0; agent.members.size() > 1 && i < agent.members.size(); ++i)
      text += row("  " + agent.members[i].trained.run.filename().string(), agent.members[i].result,
                  i == agent.best() ? "member, the best here" : "member");
    if (agent.ensemble) text += row("  ensemble", *agent.ensemble, "all members together");
    text += row("  rule of thumb", agent.rule, "");
    text += row("  random", agent.random, "");
    const auto known = [&](const char* name, const WebReturn& value) {
      text += fmt::format("{:<26} {:6.3f}   {:^16}   {:8.2f} +- {:<6.2f} frozen with the scale\n", name,
                          scale.score(value.mean), "", value.mean, value.error);
    };
    known("  solver", scale.solver());
    known("  oracle", scale.oracle);
    text += "  terms of an episode:";
    for (const auto& [name, value] : own.result.terms) text += fmt::format(" {} {:.2f}", name, value);
    text += "\n";
  }
  return text;
}

}  // namespace tandem
