#include "recipes/history_eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/printable.h"
#include "command/command.h"
#include "rl/dqn/trained_agent.h"
#include "rl/held_out.h"
#include "rl/replay/experience.h"
#include "runs/run_folder.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct Judged {
  PolicyValue agent, recorded;
  ValueChange change;
  int64_t episodes = 0, held_out = 0;
};

void refuse_flags_of_environments(const Arguments& arguments) {
  for (const char* flag : {"episodes", "seed", "render", "output"})
    if (arguments.has(flag))
      throw ConfigError(fmt::format("--{} is for runs that played in an environment", flag),
                        "this one learned from recorded transitions alone, and is judged by those that were held out",
                        fmt::format("leave --{} out", flag));
}

Experience experience_of_run(const RunFolder& run, const DqnSettings& settings) {
  const ExperienceSettings& own = settings.experience;
  if (own.holdout == 0)
    throw ConfigError(
        fmt::format("{} can't be judged: nothing was held out", run.id()),
        "it learned from all of its experience (experience.holdout = 0), and no environment is known",
        "train with --set experience.holdout=0.1, or try the policy where it is to be used: `tandem act`");
  try {
    return Experience::read(experience_files(own.files), settings.history_shape().value(), settings.history_agent(),
                            {own.holdout, split_named(own.split)}, own.digest);
  } catch (const Error& error) {
    throw ConfigError(fmt::format("{} can't be judged: its experience can't be read again", run.id()),
                      fmt::format("{}: {}", error.what(), error.why()),
                      fmt::format("bring back {} as it was when the run began", printable(own.files)));
  }
}

Judged judge_agent(const RunFolder& run, const TrainedAgent& trained, const LoggedEpisodes& all, double gamma) {
  if (trained.net->observation_size() != all.state_size || trained.net->actions() < all.action_count)
    throw CheckpointError(
        fmt::format("the weights of {} do not fit its experience", run.dir().string()),
        fmt::format("they take {} numbers and know {} actions, the experience has {} and {}",
                    trained.net->observation_size(), trained.net->actions(), all.state_size, all.action_count),
        "leave experience.state_size and experience.actions as the run had them");
  const LoggedEpisodes part = all.at_most(FittedQEvaluation::kMostRows);
  const FittedQEvaluation evaluation(part, gamma);
  Judged out{
      evaluation.value(greedy_on_states(*trained.net)), evaluation.as_played(), {}, part.different(), all.different()};
  out.change = value_change(out.recorded, out.agent);
  return out;
}

Json value_json(const PolicyValue& value) {
  const double half = value_half_width(value);
  return {{"value", value.value}, {"low", value.value - half}, {"high", value.value + half}};
}

std::string value_row(const char* name, double value, double low, double high) {
  return fmt::format("{:<26} {:>9.3f}   {:>9.3f} to {:<9.3f}\n", name, value, low, high);
}

std::string history_table(const Judged& judged) {
  const double own = value_half_width(judged.agent), theirs = value_half_width(judged.recorded);
  return fmt::format("{:<26} {:>9}   {:^22}\n", "policy", "value", "95 % interval") +
         value_row("greedy", judged.agent.value, judged.agent.value - own, judged.agent.value + own) +
         value_row("as recorded", judged.recorded.value, judged.recorded.value - theirs,
                   judged.recorded.value + theirs) +
         value_row("difference", judged.change.change, judged.change.low, judged.change.high);
}

}  // namespace

StatePolicy greedy_on_states(const QFunction& q) {
  return [&q](const float* states, int64_t n, int32_t* actions) {
    constexpr int64_t kAtOnce = 256;
    const int64_t width = q.observation_size(), count = q.actions();
    std::vector<float> values(static_cast<size_t>(kAtOnce * count));
    for (int64_t first = 0; first < n; first += kAtOnce) {
      const int64_t rows = std::min(kAtOnce, n - first);
      q.q_values(states + first * width, rows, values.data());
      for (int64_t r = 0; r < rows; ++r) {
        const float* const own = values.data() + r * count;
        const bool numbers = std::all_of(own, own + count, [](float value) { return std::isfinite(value); });
        actions[first + r] = numbers ? best_action(own, count) : -1;
      }
    }
  };
}

int eval_by_history(const Command& command, const RunFolder& run, const DqnSettings& settings) {
  refuse_flags_of_environments(command.arguments);
  const TrainedAgent trained = load_agent(run.dir());
  for (const std::string& reason : trained.refused)
    command.output.warn(fmt::format("{}: passed over {}", run.dir().string(), reason));
  LoggedEpisodes log = held_out_episodes(experience_of_run(run, settings));
  log.action_count = std::max(log.action_count, trained.net->actions());
  if (log.different() < kFewestEpisodes)
    throw ConfigError(fmt::format("{} can't be judged: too few episodes were held out", run.id()),
                      fmt::format("there are {} different ones, {} are needed, and no environment is known",
                                  log.different(), kFewestEpisodes),
                      "train with more episodes or a larger experience.holdout, or try the policy where it is to be "
                      "used: `tandem act`");
  const Judged judged = judge_agent(run, trained, log, settings.gamma);
  if (!std::isfinite(judged.agent.value))
    throw CheckpointError(fmt::format("{} answers with values that are no numbers", run.id()),
                          "a weight is NaN or infinite", "go on from an older checkpoint, or train anew");
  if (command.output.json()) {
    Json one = value_json(judged.agent);
    one.update({{"known", judged.agent.known},
                {"run", run.dir().string()},
                {"step", trained.step},
                {"digest", trained.digest},
                {"change", {{"value", judged.change.change}, {"low", judged.change.low}, {"high", judged.change.high}}},
                {"lines", {{"recorded", value_json(judged.recorded)}}}});
    command.output.object({{"run", run.id()},
                           {"dir", fs::absolute(run.dir()).string()},
                           {"environment", "experience"},
                           {"method", kOffPolicyMethod},
                           {"episodes", judged.episodes},
                           {"held_out", judged.held_out},
                           {"agents", {{run.recipe(), one}}}});
    return 0;
  }
  command.output.data(history_table(judged));
  command.output.say(fmt::format(
      "discounted return by {} on {}{} episodes that were held out, weights of step {}; the interval is that of chance "
      "alone",
      kOffPolicyMethod, judged.episodes,
      judged.held_out > judged.episodes ? fmt::format(" of {}", judged.held_out) : "", trained.step));
  if (judged.agent.known < 1)
    command.output.warn(
        fmt::format("{:.0f} % of its decisions are actions that these episodes hardly have: of those "
                    "little is known",
                    100 * (1 - judged.agent.known)));
  return 0;
}

}  // namespace tandem
