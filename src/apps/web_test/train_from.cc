// apps/web_test/train_from.cc -- the daily increment and the weekly full training, each in a new run; at its end gates
// decide whether the new model takes the old one's place (docs/continuous-learning.md).
#include "apps/web_test/train_from.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/web_test/experience_before.h"
#include "apps/web_test/gate.h"
#include "apps/web_test/timer.h"
#include "apps/web_test/web_test_set.h"
#include "base/clock.h"
#include "base/errors.h"
#include "base/file_system.h"
#include "base/printable.h"
#include "command/command.h"
#include "command/start.h"
#include "hardware/driver_check.h"
#include "launch/run_lock.h"
#include "recipes/experience_at_start.h"
#include "recipes/web_agent_settings.h"
#include "rl/dqn/dqn_settings.h"
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

std::string given(const Arguments& arguments, const std::string& key) {
  std::string value;
  for (const Override& flag : arguments.overrides)
    if (flag.key == key) value = flag.value;
  return value;
}

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
  Continuation(Command command, const RunFolder& old, AgentRuns runs)
      : command_(command),
        old_(old),
        runs_(std::move(runs)),
        quiet_output_(false, command.output.quiet(), command.output.verbose(), !command.output.color()),
        inner_{command.arguments, command.context, quiet_output_} {}

  int run() {
    prepare();
    if (command_.arguments.dry_run) {
      for (const Job& job : jobs_) show_dry_run(inner_, job.recipe, job.devices);
      return 0;
    }
    check_worker_program(command_.context);
    make_folder();
    for (Job& job : jobs_)
      if (const int code = train(job); code != 0) {
        command_.output.say(fmt::format("{} stays as it was; `{} resume {}` goes on", old_.id(),
                                        command_.context.program, job.dir.string()));
        finish_parent("stopped", code);
        return code;
      }
    const bool accepted = judge_all();
    finish_parent("done", accepted ? 0 : static_cast<int>(ExitCode::kCheckFailed));
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
      if (given(command_.arguments, "devices").empty()) recipe.resolver->set("devices", one_device(), "--from");
      auto devices = settle(recipe, inner_);
      jobs_.push_back({agent, std::move(old), std::move(first), std::move(recipe), std::move(devices), {}, {}, {}});
    }
    if (jobs_.empty())
      throw ConfigError("nothing new to learn from", "the experience holds nothing of any agent of the run",
                        "see docs/continuous-learning.md for the names of agents");
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

  void make_folder() {
    std::optional<fs::path> exact;
    if (command_.arguments.run_dir) exact = *command_.arguments.run_dir;
    const fs::path root = runs_root(command_.arguments);
    if (!several()) {
      const RunFolder run = RunFolder::create(root, kAgentRecipe, exact);
      jobs_.front().dir = run.dir();
      parent_ = run.dir();
      id_ = run.id();
      return;
    }
    const RunFolder parent = RunFolder::create(root, "web-test", exact);
    parent_ = parent.dir();
    id_ = parent.id();
    update_run_json(parent_, {{"status", "running"}});
    Json agents = Json::object();
    for (Job& job : jobs_) {
      job.dir = RunFolder::create(root, kAgentRecipe, parent_ / "agents" / job.agent.agent).dir();
      const std::string name = "agents/" + job.agent.agent;
      agents[job.agent.agent] = {{"runs", {name}}, {"best", name}};
    }
    const Json whole = {{"schema", 1},
                        {"strategy", command_.arguments.full ? "full" : "increment"},
                        {"from", fs::absolute(old_.dir()).lexically_normal().string()},
                        {"agents", agents}};
    replace_file(FileSystem::real(), parent_ / "agents.json", whole.dump(2) + "\n");
  }

  int train(Job& job) {
    const RunFolder run = RunFolder::open(job.dir);
    const RunLock lock(run.dir());
    auto& settings = dynamic_cast<DqnSettings&>(*job.recipe.settings);
    if (!settings.from_digest.empty()) {
      settings.from = (fs::absolute(job.dir) / kFirstWeights).lexically_normal().string();
      write_safetensors(FileSystem::real(), settings.from, job.old.model.tensors(),
                        {{"format", "pt"}, {"digest", job.old.digest}, {"run", fs::absolute(job.old.run).string()}});
    }
    run.write_recipe(job.recipe.resolver->to_toml(job.recipe.name));
    command_.output.say(fmt::format("{}: {} from {}", job.agent.agent,
                                    command_.arguments.full ? "a full training" : "an increment",
                                    job.old.run.string()));
    return start_run(inner_, job.recipe, job.devices, run.dir(), false);
  }

  // What the new training kept apart; nothing: it learned from no experience, or kept nothing.
  std::optional<LoggedEpisodes> held_out_of(const DqnSettings& settings) const {
    const ExperienceSettings& own = settings.experience;
    if (own.files.empty() || own.holdout == 0) return std::nullopt;
    try {
      return held_out_episodes(Experience::read(experience_files(own.files), settings.history_shape().value(),
                                                settings.history_agent(), {own.holdout, split_named(own.split)},
                                                own.digest));
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
        experience_before(job.agent.best, settings.experience.holdout, [&](const fs::path& run) -> const DqnSettings& {
          recipe = resolve_run(run / "recipe.toml", Arguments{}, command_.context, inner_.output);
          return dynamic_cast<const DqnSettings&>(*recipe.settings);
        });
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
    const auto fresh = held_out_of(settings);
    const ExperienceBefore before = learned_before(job, settings);
    const bool simulator =
        played(after.settings) || played(job.old.settings) || (job.first && played(job.first->settings));
    job.gate = judge({.before = job.old,
                      .after = after,
                      .first = job.first ? &*job.first : nullptr,
                      .fresh = fresh ? &*fresh : nullptr,
                      .earlier = before.held_out.rows() > 0 ? &before.held_out : nullptr,
                      .simulator = simulator,
                      .rules = gate_rules_of(settings.gate)},
                     plan);
    job.json = gate_json(job.gate);
    job.json.update({{"run", fs::absolute(job.dir).lexically_normal().string()},
                     {"old", fs::absolute(job.old.run).lexically_normal().string()},
                     {"digest", after.digest},
                     {"old_digest", job.old.digest},
                     {"step", after.step}});
  }

  bool judge_all() {
    EvaluationPlan plan;
    plan.episodes = kGateEpisodes;
    bool all = true;
    for (Job& job : jobs_) {
      judge_one(job, plan);
      const bool accepted = job.gate.passed();
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

  int report(bool accepted) const {
    std::vector<GateResult> gates;
    Json agents = Json::object();
    std::vector<std::string> refused, taken;
    bool by_old = false;  // `old` alone stands in the way somewhere
    for (const Job& job : jobs_) {
      gates.push_back(job.gate);
      agents[job.agent.agent] = job.json;
      (job.gate.passed() ? taken : refused).push_back(job.agent.agent);
      for (const GateLine& line : job.gate.lines) {
        by_old = by_old || (line.refuses() && line.name != "new");
        if (!line.passed && !line.refuses())
          command_.output.warn(fmt::format("{}: gate {} is not passed: {}", job.agent.agent, line.name, line.note));
      }
    }
    const int code = accepted ? 0 : static_cast<int>(ExitCode::kCheckFailed);
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
    const Error error(ExitCode::kCheckFailed,
                      fmt::format("{}: the new model does not replace the old", fmt::join(refused, ", ")),
                      "it is worse on the old or on the new, as the table says",
                      fmt::format("{} answers as before; look at {}, give more experience, or train longer{}{}",
                                  old_.id(), parent_.string(), command_.arguments.full ? "" : ", or with --full",
                                  by_old ? "; --gate old=warn takes a model that is worse on the old" : ""));
    Output(false, command_.output.quiet(), false, !command_.output.color()).error(error);
    return code;
  }

  const Command command_;
  const RunFolder& old_;
  AgentRuns runs_;
  Output quiet_output_;  // each training says what it does on stderr; the one object at the end is ours
  Command inner_;
  std::vector<Job> jobs_;
  fs::path parent_;
  std::string id_;
};

int print_timer(const Command& command, const RunFolder& run) {
  std::error_code ignored;
  const fs::path self = fs::read_symlink("/proc/self/exe", ignored);
  const std::string recipe = command.subject("web-test");
  const std::string files = given(command.arguments, "experience.files");
  const std::string from = fs::absolute(run.dir()).lexically_normal().string();
  std::vector<std::string> base = {self.empty() ? command.context.program : self.string(),
                                   "train",
                                   recipe,
                                   "--from",
                                   from,
                                   "--runs-root",
                                   fs::absolute(runs_root(command.arguments)).lexically_normal().string()};
  std::vector<std::string> names;
  for (const fs::path& file : experience_files(files.empty() ? "new.jsonl" : files))
    names.push_back(fs::absolute(file).lexically_normal().string());
  std::vector<std::string> daily = base, weekly = base;
  for (auto* words : {&daily, &weekly}) {
    words->emplace_back("--experience");
    words->push_back(fmt::format("{}", fmt::join(names, ",")));
  }
  if (const std::string gate = given(command.arguments, "gate"); !gate.empty())
    for (auto* words : {&daily, &weekly}) words->insert(words->end(), {"--gate", gate});
  weekly.emplace_back("--full");
  const std::string folder = fs::current_path().string();
  const std::vector<TimedCommand> commands = {{"tandem-daily", "*-*-* 03:00:00", "0 3 * * *", folder, daily},
                                              {"tandem-weekly", "Sun *-*-* 04:00:00", "0 4 * * 0", folder, weekly}};
  if (!command.output.json()) {
    command.output.data(timer_text(commands));
    return 0;
  }
  Json out = Json::object();
  for (const TimedCommand& one : commands)
    out[one.name] = {{"service", systemd_service(one)}, {"timer", systemd_timer(one)}, {"cron", cron_line(one)}};
  command.output.object(out);
  return 0;
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
  AgentRuns runs = agent_runs_of(old.dir());
  // `--agents a,b` and `--set agent=a` choose; the settings of each run name its own agent.
  std::vector<AgentRun> chosen;
  for (const char* key : {"agent", "agents"})
    for (const fs::path& name : experience_files(given(arguments, key)))
      chosen.push_back(find_agent(runs, name.string()));
  if (!chosen.empty()) runs.agents = chosen;
  if (arguments.print_timer) return print_timer(command, old);
  Arguments others = arguments;
  std::erase_if(others.overrides, [](const Override& flag) { return flag.key == "agent" || flag.key == "agents"; });
  return Continuation({others, command.context, command.output}, old, std::move(runs)).run();
}

}  // namespace tandem
