#include "recipes/eval_verb.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/errors.h"
#include "command/command.h"
#include "command/out_file.h"
#include "command/sources.h"
#include "recipes/gym_film.h"
#include "rl/dqn/q_function.h"
#include "rl/dqn/trained_agent.h"
#include "rl/gym/gym_environment.h"
#include "rl/ppo/trained_policy.h"
#include "runs/run_folder.h"
#include "telemetry/atomic_file.h"
#include "telemetry/learning_figures.h"
#include "telemetry/report.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int64_t kPlayedAtOnce = 64;                             // a larger number would need as many simulators
constexpr size_t kFilmedEpisodes = 3, kMostFilmedActions = 5000;  // the first one is filmed whole
constexpr uint64_t kNextChunk = 0x9E3779B97F4A7C15u;              // between seeds of chunks

struct PlayPlan {
  int64_t episodes = 0;
  uint64_t seed = 1;
};

struct Played {
  Evaluation result;
  std::vector<int64_t> lengths;
  std::vector<FilmedEpisode> film;  // actions, and of a Gymnasium environment seeds, of the first chunk
  double mean_length() const {
    double sum = 0;
    for (const int64_t length : lengths) sum += static_cast<double>(length);
    return lengths.empty() ? 0 : sum / static_cast<double>(lengths.size());
  }
};

PlayPlan play_plan(const Arguments& arguments, int64_t episodes) {
  PlayPlan plan{.episodes = arguments.whole("episodes", episodes)};
  if (plan.episodes < 2 || plan.episodes > 1'000'000)
    throw ConfigError(fmt::format("--episodes {}: no number of episodes to judge by", plan.episodes),
                      "an interval needs 2, and 1,000,000 fill a gigabyte",
                      fmt::format("leave it out for {}", episodes));
  const int64_t seed = arguments.whole("seed", 1);
  if (seed < 0) throw ConfigError(fmt::format("--seed {} is below 0", seed), "seeds count from 0", "give another");
  plan.seed = static_cast<uint64_t>(seed);
  return plan;
}

// One chunk's episodes, added to what was played before.
void play_chunk(const Environment& environment, const Policy& policy, int64_t n, uint64_t seed, bool filmed,
                Played& all) {
  const size_t first = all.lengths.size();
  all.lengths.resize(first + static_cast<size_t>(n), 0);
  if (filmed) all.film.resize(static_cast<size_t>(n));
  const auto* const gym = filmed ? dynamic_cast<const GymEnvironment*>(&environment) : nullptr;
  const Policy watched = [&](const std::byte* states, int64_t count, uint64_t step, const ChosenActions& actions) {
    if (gym && step == 0)
      for (int64_t i = 0; i < count; ++i) all.film[static_cast<size_t>(i)].seed = gym->episode_seed(states, i);
    policy(states, count, step, actions);
  };
  const Watcher watcher = [&](int64_t episode, const float*, const TakenAction& action, const Outcome&, const float*) {
    ++all.lengths[first + static_cast<size_t>(episode)];
    if (filmed) all.film[static_cast<size_t>(episode)].add(action);
  };
  const Evaluation chunk = play(environment, watched, n, seed, watcher);
  const auto share = static_cast<double>(n) / static_cast<double>(all.lengths.size());
  if (all.result.terms.empty())
    all.result.terms = chunk.terms;
  else
    for (size_t t = 0; t < chunk.terms.size(); ++t)
      all.result.terms[t].second += share * (chunk.terms[t].second - all.result.terms[t].second);
  all.result.returns.insert(all.result.returns.end(), chunk.returns.begin(), chunk.returns.end());
}

using PolicyOfSeed = std::function<Policy(uint64_t seed)>;  // of a chunk: no two play the same random numbers

Played play_all(const Environment& environment, const PolicyOfSeed& policy, const PlayPlan& plan, bool filmed) {
  Played all;
  for (int64_t done = 0, chunk = 0; done < plan.episodes; ++chunk) {
    const int64_t n = std::min(kPlayedAtOnce, plan.episodes - done);
    const uint64_t seed = plan.seed + static_cast<uint64_t>(chunk) * kNextChunk;
    play_chunk(environment, policy(seed), n, seed, filmed && chunk == 0, all);
    done += n;
  }
  Evaluation& result = all.result;
  result.episodes = plan.episodes;
  const auto n = static_cast<double>(plan.episodes);
  for (const double r : result.returns) result.mean += r;
  result.mean /= n;
  double squares = 0;
  for (const double r : result.returns) squares += (r - result.mean) * (r - result.mean);
  result.error = std::sqrt(squares / (n - 1) / n);
  result.score = environment.score(result.mean);
  if (result.score) result.score_error = *environment.score(result.mean + result.error) - *result.score;
  return all;
}

Json json_of(const Played& played) {
  const Evaluation& e = played.result;
  const double half = kInterval * e.error;
  const auto [least, most] = std::ranges::minmax(e.returns);
  Json out = {{"return", e.mean}, {"error", e.error}, {"return_low", e.mean - half},   {"return_high", e.mean + half},
              {"least", least},   {"most", most},     {"length", played.mean_length()}};
  if (e.score) {
    out["score"] = *e.score;
    out["low"] = *e.score - kInterval * *e.score_error;
    out["high"] = *e.score + kInterval * *e.score_error;
  }
  for (const auto& [name, value] : e.terms) out["terms"][name] = value;
  return out;
}

std::string row(const std::string& name, const Played& played) {
  const Evaluation& e = played.result;
  const double half = kInterval * e.error;
  const auto [least, most] = std::ranges::minmax(e.returns);
  std::string text = fmt::format("{:<26} {:>9}   {:>9} to {:<9}  {:>9} to {:<9} {:>8.1f}", name, return_text(e.mean),
                                 return_text(e.mean - half), return_text(e.mean + half), return_text(least),
                                 return_text(most), played.mean_length());
  if (e.score) text += fmt::format("  {:>6.3f} +- {:.3f}", *e.score, kInterval * *e.score_error);
  return text + "\n";
}

std::string table(const std::string& name, const Played& agent, const Played& random) {
  return fmt::format("{:<26} {:>9}   {:^22}  {:^22} {:>8}{}\n", "agent", "return", "95 % interval", "least and most",
                     "steps", agent.result.score ? "   score" : "") +
         row(name, agent) + row("random play", random);
}

void check_fit(const JudgedAgent& trained, const fs::path& run, const Environment& environment,
               const std::string& name) {
  if (trained.observation_size == environment.observation_size() && trained.actions == environment.actions() &&
      trained.action_size == environment.action_size())
    return;
  const auto known = [](int64_t actions, int64_t size) {
    return size > 0 ? fmt::format("continuous actions of {}", size) : fmt::format("{} actions", actions);
  };
  throw CheckpointError(
      fmt::format("the weights of {} do not fit {}", run.string(), name),
      fmt::format("they take {} numbers and know {}, the environment has {} and {}", trained.observation_size,
                  known(trained.actions, trained.action_size), environment.observation_size(),
                  known(environment.actions(), environment.action_size())),
      "put back the environment that the run was trained in; one of Gymnasium's is named by TANDEM_ENV_ID too");
}

std::string film(const Environment& environment, const Played& played, const std::string& file) {
  const auto& gym = dynamic_cast<const GymEnvironment&>(environment);
  std::vector<FilmedEpisode> episodes;
  size_t actions = 0;
  for (const FilmedEpisode& episode : played.film) {
    actions += episode.length();
    if (episodes.size() == kFilmedEpisodes || (!episodes.empty() && actions > kMostFilmedActions)) break;
    episodes.push_back(episode);
  }
  const Film made = film_episodes(gym.options(), gym.python(), episodes, file);
  return fmt::format("video  {}: {} episode{}, {} frames of {} x {}", file, episodes.size(),
                     episodes.size() == 1 ? "" : "s", made.frames, made.width, made.height);
}

// The page reads evaluation.json from the folder, so that `tandem report` keeps it.
std::string write_page(const Command& command, const RunFolder& run, const Json& result) {
  try {
    write_file_atomically(run.dir() / "evaluation.json",
                          result.dump(2, ' ', false, Json::error_handler_t::replace) + "\n", Durability::kProcessDeath);
    if (const std::string given = command.arguments.text("output"); !given.empty()) {
      write_out_file(given, make_report(run.dir()), "--output");
      return given;
    }
    return write_report(run.dir()).string();
  } catch (const IoError& error) {
    command.output.warn(fmt::format("the report was not written: {} ({})", error.what(), error.why()));
    return "";
  }
}

int run_eval(const Command& command, const EnvironmentOf& environment_of, int64_t default_episodes,
             const AgentOf& agent_of) {
  const Arguments& arguments = command.arguments;
  const PlayPlan plan = play_plan(arguments, default_episodes);
  const std::string video = arguments.text("render");
  if (!video.empty()) check_film_file(video);
  check_out_file(arguments.text("output"), "--output");
  const RunFolder run = RunFolder::find(runs_root(arguments), command.subject("last"));
  const JudgedAgent trained = agent_of(run.dir());
  for (const std::string& reason : trained.refused)
    command.output.warn(fmt::format("{}: passed over {}", run.dir().string(), reason));
  const ResolvedRecipe recipe = resolve_run(run.recipe_toml(), arguments, command.context, command.output);
  const JudgedEnvironment judged = environment_of(*recipe.settings);
  const std::string name = judged.name.empty() ? recipe.name : judged.name;
  const Environment& environment = *judged.environment;
  check_fit(trained, run.dir(), environment, name);
  const auto* const gym = dynamic_cast<const GymEnvironment*>(&environment);
  if (!video.empty() && !gym)
    throw ConfigError(fmt::format("{} draws no pictures", name),
                      "pictures come from Gymnasium environments (recipes dqn and ppo)", "leave --render out");
  if (!video.empty()) check_film_ready(gym->options(), gym->python());

  const auto greedy = [&](uint64_t) { return trained.greedy(environment); };
  const auto at_random = [&](uint64_t seed) { return random_play(environment, seed); };
  const Played agent = play_all(environment, greedy, plan, !video.empty());
  const Played random = play_all(environment, at_random, plan, false);
  if (const std::string note = environment.take_note(); !note.empty()) command.output.warn(note);
  Json one = json_of(agent);
  one["episodes"] = plan.episodes;
  one["run"] = run.dir().string();
  one["step"] = trained.step;
  one["digest"] = trained.digest;
  one["lines"]["random"] = json_of(random);
  Json result = {{"run", run.id()},     {"dir", fs::absolute(run.dir()).string()},
                 {"environment", name}, {"episodes", plan.episodes},
                 {"seed", plan.seed},   {"agents", {{name, one}}}};
  const std::string page = write_page(command, run, result);
  std::string filmed;
  std::optional<Error> not_filmed;  // the figures are printed all the same
  try {
    if (!video.empty()) filmed = film(environment, agent, video);
  } catch (const Error& error) {
    not_filmed = error;
  }
  if (command.output.json()) {
    result["file"] = page.empty() ? Json() : Json(page);
    if (!video.empty()) result["video"] = not_filmed ? Json() : Json(video);
    command.output.object(result);
    if (!not_filmed) return 0;
    Output(false, command.output.quiet(), false, !command.output.color()).error(*not_filmed);  // stdout has one object
    return static_cast<int>(not_filmed->code());
  }
  command.output.data(table(name, agent, random));
  command.output.say(
      fmt::format("{} greedy episodes, seed {}, weights of step {}", plan.episodes, plan.seed, trained.step));
  if (!filmed.empty()) command.output.say(filmed);
  if (!page.empty()) command.output.say(fmt::format("report {}", page));
  if (not_filmed) throw Error(*not_filmed);
  return 0;
}

}  // namespace

JudgedAgent dueling_agent(const fs::path& run) {
  const TrainedAgent trained = load_agent(run);
  return judged_values(trained.net, trained.step, trained.digest, trained.refused);
}

JudgedAgent judged_values(std::shared_ptr<const QFunction> net, int64_t step, std::string digest,
                          std::vector<std::string> refused) {
  const auto greedy = [net](const Environment& environment) { return greedy_play(environment, *net); };
  return {net->observation_size(), net->actions(), 0, greedy, step, std::move(digest), std::move(refused)};
}

JudgedAgent policy_agent(const fs::path& run) {
  const LoadedPolicy loaded = load_policy(run);
  const auto net = loaded.net;
  const auto greedy = [net](const Environment& environment) { return greedy_policy(environment, *net); };
  return {net->observation_size(), net->actions(), net->action_size(), greedy, loaded.step,
          loaded.digest,           loaded.refused};
}

RecipeVerb greedy_eval_verb(EnvironmentOf environment, int64_t episodes, AgentOf agent) {
  using Kind = VerbFlag::Kind;
  return {"eval",
          "how good the agents of a run are: greedy episodes, mean return and score with their intervals",
          [environment = std::move(environment), episodes, agent = std::move(agent)](const Command& command) {
            return run_eval(command, environment, episodes, agent);
          },
          {{"--episodes", "n", "episodes for each policy [1000; 100 in Python]", Kind::kWhole},
           {"--seed", "n", "luck of the episodes; training never draws it [1]", Kind::kWhole},
           {"-o,--output", "file", "the page with the plots [report.html in the run's folder]"},
           {"--render", "file", "film the first episodes, of environments that draw (.mp4, .mkv, .webm, .gif)"}},
          {{"eval last --episodes 200", "mean return with its interval, beside random play"},
           {"eval last --render cartpole.mp4", "and a video of a Gymnasium environment"}}};
}

}  // namespace tandem
