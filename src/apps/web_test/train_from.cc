// apps/web_test/train_from.cc -- the daily increment and the weekly full training, each in a new run; at its end gates
// decide whether the new model takes the old one's place (docs/continuous-learning.md).
#include "apps/web_test/train_from.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/web_test/experience_before.h"
#include "apps/web_test/gate.h"
#include "apps/web_test/print_timer.h"
#include "apps/web_test/web_test_set.h"
#include "base/clock.h"
#include "base/errors.h"
#include "base/file_system.h"
#include "base/printable.h"
#include "base/shell_word.h"
#include "command/command.h"
#include "command/start.h"
#include "hardware/driver_check.h"
#include "launch/run_lock.h"
#include "recipes/experience_at_start.h"
#include "recipes/web_agent_settings.h"
#include "rl/dqn/dqn_settings.h"
#include "rl/held_out.h"
#include "rl/replay/experience.h"
#include "runs/agent_runs.h"
#include "runs/run_folder.h"
#include "telemetry/run_summary.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int64_t kGateEpisodes = 2000;
constexpr double kIncrementShare = 0.1;  // of the steps of the first training

// Whether a run played in the simulator, by the settings of its checkpoint.
bool played(const Json& settings) {
  if (settings.value("experience.digest", "").empty()) return true;
  const double environments = static_cast<double>(settings.value("environments", int64_t{1}));
  return std::llround(settings.value("experience.share", 1.0) * environments) < std::llround(environments);
}

// What an increment changes in the settings of the run's first training: short, careful, half of it on what is new and
// half in the simulator, if the agent learned from that before. One that was an increment itself has them already.
Presets increment_presets(const RecipeSettings& recipe, const TrainedAgent& old, bool simulator) {
  const auto& first = dynamic_cast<const DqnSettings&>(recipe);
  Presets presets{{"seed", std::to_string(old.settings.value("seed", int64_t{1}) + 1)}, {"schedule.total_steps", "0"}};
  presets.emplace_back("experience.share", simulator ? "0.5" : "1");
  if (!first.from_digest.empty()) return presets;
  const auto steps = static_cast<int64_t>(kIncrementShare * static_cast<double>(first.steps));
  presets.emplace_back("steps", std::to_string(std::max<int64_t>(100, steps)));
  presets.emplace_back("optimizer.learning_rate", fmt::format("{:g}", first.optimizer.learning_rate / 3));
  presets.emplace_back("schedule.kind", "cosine");
  presets.emplace_back("epsilon.start", fmt::format("{:g}", std::max(0.05, first.epsilon_end)));
  presets.emplace_back("replay.beta_start", fmt::format("{:g}", first.beta_end));
  return presets;
}

// Everything again, with other luck; new experience is mixed in.
Presets full_presets(const RecipeSettings& recipe, const TrainedAgent& old) {
  Presets presets{{"seed", std::to_string(old.settings.value("seed", int64_t{1}) + 1)},
                  {"schedule.total_steps", "0"},
                  {"from", ""},
                  {"from_digest", ""}};
  if (dynamic_cast<const DqnSettings&>(recipe).experience.files.empty())
    presets.emplace_back("experience.share", "0.5");
  return presets;
}

class Continuation {
 public:
  // `held`: the runs that it goes on from, until the new models are judged.
  Continuation(Command command, const RunFolder& old, AgentRuns runs, std::vector<std::unique_ptr<RunReadLock>> held)
      : command_(command),
        old_(old),
        runs_(std::move(runs)),
        held_(std::move(held)),
        quiet_output_(false, command.output.quiet(), command.output.verbose(), !command.output.color()),
        inner_{command.arguments, command.context, quiet_output_} {}

  int run() {
    prepare();
    if (command_.arguments.dry_run) {
      for (const Job& job : jobs_) show_dry_run(inner_, job.recipe, job.devices);
      return 0;
    }
    check_worker_program(command_.context);
    check_place();
    make_folder();
    for (Job& job : jobs_)
      if (const int code = train(job); code != 0) {
        command_.output.say(fmt::format("{} stays as it was; `{} resume {}` goes on", old_.id(),
                                        command_.context.program, shell_word(job.dir.string())));
        finish_parent("stopped", code);
        return code;
      }
    const bool accepted = judge_all();
    finish_parent("done", exit_code(accepted));
    return report(accepted);
  }

 private:
  struct Job {
    AgentRun agent;
    TrainedAgent old;
    std::optional<TrainedAgent> first;  // where something replaced it
    ResolvedRecipe recipe;
    std::vector<DeviceSpec> devices;
    fs::path dir;
    GateResult gate;
    Json json;
    std::unique_ptr<RunLock> lock;  // until it is judged
  };

  // Everything is resolved and read before the first step of the first agent.
  void prepare() {
    const bool full = command_.arguments.full;
    for (const AgentRun& agent : runs_.agents) {
      TrainedAgent old = load_agent(agent.best, agent.agent);
      std::optional<TrainedAgent> first;
      if (agent.replaced()) first = load_agent(agent.first, agent.agent);
      const bool simulator = played(old.settings) || (first && played(first->settings));
      const auto presets = [&](const RecipeSettings& settings) {
        Presets all = full ? full_presets(settings, old) : increment_presets(settings, old, simulator);
        if (!agent.agent.empty()) all.emplace_back("agent", agent.agent);  // others may have learned beside it
        return all;
      };
      ResolvedRecipe recipe = resolve_run(agent.first / "recipe.toml", command_.arguments, command_.context,
                                          command_.output, presets, full ? "--full" : "--from");
      auto* const settings = dynamic_cast<DqnSettings*>(recipe.settings.get());
      if (!settings || recipe.name != kAgentRecipe)
        throw ConfigError(fmt::format("{} is a run of {}", agent.first.string(), recipe.name),
                          "going on with gates is for the web-test agents", "name a run of web-agent or web-test");
      if (!full && settings->experience.files.empty())
        throw ConfigError("nothing new to learn from", "an increment learns from --experience",
                          "give --experience new.jsonl, or --full to train everything again");
      if (!full) {  // where it will lie, so that the settings are whole before the folder is made
        settings->from = kFirstWeights;
        settings->from_digest = old.digest;
        recipe.resolver->note_source("from", agent.best.string());
        recipe.resolver->note_source("from_digest", "the weights at the start");
      }
      try {
        take_experience(inner_, recipe);
      } catch (const ConfigError& error) {
        // A file of some agents only: the others have nothing new today.
        if (full || runs_.agents.size() == 1 ||
            std::string(error.what()).find("nothing of the agent") == std::string::npos)
          throw;
        command_.output.say(fmt::format("{}: nothing new", agent.agent));
        continue;
      }
      if (cannot_be_judged(recipe, agent.agent)) continue;
      if (given(command_.arguments, "devices").empty()) recipe.resolver->set("devices", one_device(), "--from");
      auto devices = settle(recipe, inner_);
      jobs_.push_back({agent, std::move(old), std::move(first), std::move(recipe), std::move(devices), {}, {}, {}, {}});
    }
    if (!unjudged_.empty() && jobs_.empty())
      throw ConfigError(
          fmt::format("{}: nothing was trained, since nothing could judge it", fmt::join(names_of(unjudged_), ", ")),
          fmt::format("{}; with fewer the interval means nothing", unjudged_.front().why),
          "give more episodes, hold out more of them (--set experience.holdout=0.3), or take the new model without "
          "that "
          "judge: --gate new=warn");
    for (const Unjudged& one : unjudged_)
      command_.output.warn(
          fmt::format("{}: left out, since nothing could judge it: {}; --gate new=warn trains it", one.agent, one.why));
    if (jobs_.empty())
      throw ConfigError("nothing new to learn from", "the experience holds nothing of any agent of the run",
                        "see docs/continuous-learning.md for the names of agents");
  }

  // Before hours of training: too few episodes to be judged by, and a gate that refuses then.
  bool cannot_be_judged(const ResolvedRecipe& recipe, const std::string& agent) {
    const auto& settings = dynamic_cast<const WebAgentSettings&>(*recipe.settings);
    if (gate_rules_of(settings.gate).fresh != GateRule::kRefuse) return false;
    const auto fresh = experience_of(settings);
    if (!fresh || settings.experience.holdout == 0) return false;
    const int64_t held_out = held_out_episodes(*fresh).different();
    if (held_out >= kFewestEpisodes) return false;
    unjudged_.push_back({agent, too_few_episodes(held_out)});
    return true;
  }

  // Others may train on the rest of the machine.
  std::string one_device() const {
    try {
      return parse_devices("cuda:0", command_.context.machine).size() == 1 ? "cuda:0" : "cpu:1";
    } catch (const OldDriverError&) {
      throw;  // a GPU is here, and could train
    } catch (const ConfigError&) {
      return "cpu:1";
    }
  }

  bool several() const { return fs::exists(old_.dir() / "agents.json") || runs_.agents.size() > 1; }

  // The settings of an increment name its first weights, which lie in its folder, and settings are UTF-8.
  void check_place() const {
    const Arguments& arguments = command_.arguments;
    const fs::path place = fs::absolute(arguments.run_dir ? fs::path(*arguments.run_dir) : runs_root(arguments));
    if (arguments.full || is_utf8(place.string())) return;
    throw ConfigError(fmt::format("the new run can't lie in {}", place.string()),
                      "the name is no UTF-8, which recipe.toml is, and that names the weights it begins with",
                      "name another folder with --run-dir");
  }

  void make_folder() {
    std::optional<fs::path> exact;
    if (command_.arguments.run_dir) exact = *command_.arguments.run_dir;
    const fs::path root = runs_root(command_.arguments);
    if (!several()) {
      const RunFolder run = RunFolder::create(root, kAgentRecipe, exact);
      jobs_.front().dir = run.dir();
      jobs_.front().lock = std::make_unique<RunLock>(run.dir());
      parent_ = run.dir();
      id_ = run.id();
      return;
    }
    const RunFolder parent = RunFolder::create(root, "web-test", exact);
    parent_ = parent.dir();
    id_ = parent.id();
    parent_lock_ = std::make_unique<RunLock>(parent_);
    parent.write_status({.status = "running"});
    Json agents = Json::object();
    for (Job& job : jobs_) {
      job.dir = RunFolder::create(root, kAgentRecipe, parent_ / "agents" / job.agent.agent).dir();
      job.lock = std::make_unique<RunLock>(job.dir);
      const std::string name = "agents/" + job.agent.agent;
      agents[job.agent.agent] = {{"runs", {name}}, {"best", name}};
    }
    const Json whole = {{"schema", 1},
                        {"strategy", command_.arguments.full ? "full" : "increment"},
                        {"from", fs::absolute(old_.dir()).lexically_normal().string()},
                        {"agents", agents}};
    replace_file(FileSystem::real(), parent_ / "agents.json",
                 whole.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  }

  int train(Job& job) {
    const RunFolder run = RunFolder::open(job.dir);
    auto& settings = dynamic_cast<DqnSettings&>(*job.recipe.settings);
    if (!settings.from_digest.empty()) {
      settings.from = (fs::absolute(job.dir) / kFirstWeights).lexically_normal().string();
      write_safetensors(
          FileSystem::real(), settings.from, job.old.model.tensors(),
          {{"format", "pt"}, {"digest", job.old.digest}, {"run", printable(fs::absolute(job.old.run).string())}});
    }
    run.write_recipe(job.recipe.resolver->to_toml(job.recipe.name));
    command_.output.say(fmt::format("{}: {} from {}", job.agent.agent,
                                    command_.arguments.full ? "a full training" : "an increment",
                                    job.old.run.string()));
    return start_run(inner_, job.recipe, job.devices, run.dir(), false);
  }

  // What the new training has; nothing: it learns from no experience.
  std::optional<Experience> experience_of(const DqnSettings& settings) const {
    const ExperienceSettings& own = settings.experience;
    if (own.files.empty()) return std::nullopt;
    try {
      return Experience::read(experience_files(own.files), settings.history_shape().value(), settings.history_agent(),
                              {own.holdout, split_named(own.split)}, own.digest);
    } catch (const Error&) {
      throw Error(ExitCode::kFailed, "the new experience can't be read again",
                  "it changed while the run was learning from it",
                  fmt::format("{} stays as it was; begin again with a file that nobody writes to", old_.id()));
    }
  }

  ExperienceBefore learned_before(const Job& job, const DqnSettings& settings) const {
    if (settings.experience.files.empty()) return {};
    ResolvedRecipe recipe;
    ExperienceBefore before =
        experience_before(job.agent.best, settings.experience.holdout, settings.history_shape().value(),
                          settings.history_agent(), [&](const fs::path& run) -> const DqnSettings& {
                            recipe = resolve_run(run / "recipe.toml", Arguments{}, command_.context, inner_.output);
                            return dynamic_cast<const DqnSettings&>(*recipe.settings);
                          });
    if (!before.lost.empty())
      command_.output.warn(fmt::format(
          "{}: the run {} is gone, which was in use before: what it and those before it learned from is not "
          "judged by, unless a later run learned from it too",
          job.agent.agent, printable(before.lost)));
    for (const std::string& files : before.absent)
      command_.output.warn(
          fmt::format("{}: not judged by {}, which it learned from before: the file is gone or changed, "
                      "or its episodes were not kept whole",
                      job.agent.agent, printable(files)));
    return before;
  }

  void judge_one(Job& job, const EvaluationPlan& plan) {
    const TrainedAgent after = load_agent(job.dir);
    const auto& settings = dynamic_cast<const WebAgentSettings&>(*job.recipe.settings);
    const auto experience = experience_of(settings);
    ExperienceBefore before = learned_before(job, settings);
    std::optional<LoggedEpisodes> fresh;
    int64_t learned = 0;
    if (experience) {
      before.learned.add(*experience);
      before.learned.leave_out_of(before.held_out);
      if (settings.experience.holdout > 0) fresh = held_out_episodes(*experience);
      if (fresh) learned = before.learned.leave_out_of(*fresh);
      say_what_judges(job.agent.agent, fresh ? &*fresh : nullptr, before.held_out);
    }
    const bool simulator =
        played(after.settings) || played(job.old.settings) || (job.first && played(job.first->settings));
    job.gate = judge({.before = job.old,
                      .after = after,
                      .first = job.first ? &*job.first : nullptr,
                      .fresh = fresh ? &*fresh : nullptr,
                      .earlier = before.held_out.rows() > 0 ? &before.held_out : nullptr,
                      .learned = learned,
                      .simulator = simulator,
                      .rules = gate_rules_of(settings.gate)},
                     plan);
    job.json = gate_json(job.gate);
    job.json.update({{"run", fs::absolute(job.dir).lexically_normal().string()},
                     {"old", fs::absolute(job.old.run).lexically_normal().string()},
                     {"digest", after.digest},
                     {"old_digest", job.old.digest},
                     {"learned", learned_json(settings.experience, before.sources)},
                     {"step", after.step}});
  }

  // Fitted Q evaluation of many rows takes a while: about a second for 2000 of them.
  void say_what_judges(const std::string& agent, const LoggedEpisodes* fresh, const LoggedEpisodes& earlier) const {
    constexpr int64_t kQuick = 2000;
    const int64_t rows = (fresh ? fresh->rows() : 0) + earlier.rows();
    if (rows <= kQuick) return;
    const bool part = std::max(fresh ? fresh->rows() : 0, earlier.rows()) > FittedQEvaluation::kMostRows;
    command_.output.say(
        fmt::format("{}: judging by {} held-out transitions{}: up to a minute", agent, rows,
                    part ? fmt::format(", {} of each gate at most", FittedQEvaluation::kMostRows) : ""));
  }

  bool judge_all() {
    EvaluationPlan plan;
    plan.episodes = kGateEpisodes;
    bool all = true;
    for (Job& job : jobs_) {
      judge_one(job, plan);
      const bool accepted = job.gate.passed();
      worse_ = worse_ || job.gate.worse();
      replace_file(FileSystem::real(), job.dir / "gate.json",
                   job.json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
      if (accepted) make_current(old_.dir(), job.agent.agent, job.dir);
      all = all && accepted;
    }
    return all;
  }

  void finish_parent(const std::string& status, int code) const {
    if (several()) update_run_json(parent_, {{"status", status}, {"finished", utc_stamp()}, {"exit_code", code}});
  }

  // Worse is a check that failed; what could not judge needs other experience, or other settings.
  int exit_code(bool accepted) const {
    return static_cast<int>(accepted ? ExitCode::kOk : worse_ ? ExitCode::kCheckFailed : ExitCode::kUsage);
  }

  int report(bool accepted) const {
    std::vector<GateResult> gates;
    Json agents = Json::object();
    std::vector<std::string> refused, taken, unknown;  // unknown: why lines could not judge
    bool by_old = false;                               // `old` alone stands in the way somewhere
    for (const Job& job : jobs_) {
      gates.push_back(job.gate);
      agents[job.agent.agent] = job.json;
      (job.gate.passed() ? taken : refused).push_back(job.agent.agent);
      for (const GateLine& line : job.gate.lines) {
        by_old = by_old || (line.refuses() && line.name != "new");
        if (line.refuses() && !line.judged)
          unknown.push_back(fmt::format("{}, gate {}: {}", job.agent.agent, line.name, line.note));
        if (!line.passed && !line.refuses())
          command_.output.warn(fmt::format("{}: gate {} {}: {}", job.agent.agent, line.name,
                                           line.judged ? "is not passed" : "could not judge", line.note));
      }
    }
    const int code = exit_code(accepted);
    if (command_.output.json()) {
      command_.output.object({{"run", id_},
                              {"dir", fs::absolute(parent_).lexically_normal().string()},
                              {"from", old_.id()},
                              {"mode", command_.arguments.full ? "full" : "increment"},
                              {"accepted", accepted},
                              {"agents", agents},
                              {"exit_code", code}});
    } else {
      command_.output.data(gate_table(gates));
    }
    if (!taken.empty())
      command_.output.say(fmt::format("{} of {} now {} {}: `{} act {}` and `eval` use it", fmt::join(taken, ", "),
                                      old_.id(), taken.size() == 1 ? "is that of" : "are those of", parent_.string(),
                                      command_.context.program, old_.id()));
    if (accepted) {
      command_.output.say(fmt::format("every day by itself: `{} train web-test --from {} --print-timer`",
                                      command_.context.program, old_.id()));
      return 0;
    }
    const Error error = worse_ ? worse_error(refused, unknown, by_old) : unjudged_error(refused, unknown);
    Output(false, command_.output.quiet(), false, !command_.output.color()).error(error);
    return code;
  }

  Error worse_error(const std::vector<std::string>& refused, const std::vector<std::string>& unknown,
                    bool by_old) const {
    return {ExitCode::kCheckFailed, fmt::format("{}: the new model does not replace the old", fmt::join(refused, ", ")),
            fmt::format("it is worse on the old or on the new, as the table says{}",
                        unknown.empty() ? "" : fmt::format("; not judged: {}", fmt::join(unknown, "; "))),
            fmt::format("{} answers as before; look at {}, give more experience, or train longer{}{}", old_.id(),
                        parent_.string(), command_.arguments.full ? "" : ", or with --full",
                        by_old ? "; --gate old=warn takes a model that is worse on the old" : "")};
  }

  Error unjudged_error(const std::vector<std::string>& refused, const std::vector<std::string>& unknown) const {
    return {ExitCode::kUsage,
            fmt::format("{}: the new model could not be judged, so the old one stays", fmt::join(refused, ", ")),
            fmt::format("{}", fmt::join(unknown, "; ")),
            fmt::format("{} answers as before; give more episodes, hold out more of them (--set "
                        "experience.holdout=0.3), or take the new model without that judge: --gate new=warn",
                        old_.id())};
  }

  const Command command_;
  const RunFolder& old_;
  AgentRuns runs_;
  const std::vector<std::unique_ptr<RunReadLock>> held_;
  std::unique_ptr<RunLock> parent_lock_;  // where several agents lie in it
  Output quiet_output_;  // each training says what it does on stderr; the one object at the end is ours
  Command inner_;
  struct Unjudged {
    std::string agent, why;
  };
  static std::vector<std::string> names_of(const std::vector<Unjudged>& all) {
    std::vector<std::string> names;
    for (const Unjudged& one : all) names.push_back(one.agent);
    return names;
  }

  std::vector<Job> jobs_;
  std::vector<Unjudged> unjudged_;  // too few of their new episodes are held out
  bool worse_ = false;              // a gate that could judge refuses
  fs::path parent_;
  std::string id_;
};

// The runs whose weights a continuation reads, beside the one that it is named after.
void hold_agents(const AgentRuns& runs, std::vector<std::unique_ptr<RunReadLock>>& held) {
  std::set<fs::path> folders;
  for (const AgentRun& agent : runs.agents) folders.insert({agent.best, agent.first});
  for (const fs::path& folder : folders) held.push_back(std::make_unique<RunReadLock>(folder));
}

}  // namespace

int train_agents_from(const Command& command) {
  const Arguments& arguments = command.arguments;
  if (command.ranks)
    throw ConfigError("--from under another launcher", "an increment is small and runs on one machine",
                      "start `tandem` itself, without torchrun or srun");
  if (arguments.resume)
    throw ConfigError("--from and --resume name two beginnings", "one begins a new run, the other goes on with one",
                      "leave one of them out");
  const RunFolder old = RunFolder::find(runs_root(arguments), *arguments.from);
  std::vector<std::unique_ptr<RunReadLock>> held;
  const bool only_shows = arguments.dry_run || arguments.print_timer;
  if (!only_shows) held.push_back(std::make_unique<RunReadLock>(old.dir()));
  AgentRuns runs = agent_runs_of(old.dir());
  // `--agents a,b` and `--set agent=a` choose; the settings of each run name its own agent.
  std::vector<AgentRun> chosen;
  for (const char* key : {"agent", "agents"})
    for (const fs::path& name : experience_files(given(arguments, key)))
      chosen.push_back(find_agent(runs, name.string()));
  if (!chosen.empty()) runs.agents = chosen;
  if (arguments.print_timer) return print_timer(command, old);
  if (!only_shows) hold_agents(runs, held);
  Arguments others = arguments;
  std::erase_if(others.overrides, [](const Override& flag) { return flag.key == "agent" || flag.key == "agents"; });
  return Continuation({others, command.context, command.output}, old, std::move(runs), std::move(held)).run();
}

}  // namespace tandem
