#include "apps/web_test/web_test_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/web_test/web_evaluation.h"
#include "apps/web_test/web_test_costs.h"
#include "apps/web_test/web_test_jobs.h"
#include "base/errors.h"
#include "base/file_system.h"
#include "command/start.h"
#include "rl/dqn/trained_agent.h"
#include "runs/agent_runs.h"
#include "world/scale.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kJudgedEpisodes = 300;
// Of one agent: at the start its part of the GPU, at the end kJudgedEpisodes. By the 21 to 22 s that six took on an
// H200, of which 7 were training (docs/results.md).
constexpr double kSecondsBesideSteps = .9;
constexpr double kJudgedOnCore = .3;  // seconds of an agent's kJudgedEpisodes on a core

bool is_there(const fs::path& dir, const AgentJob& plan) {
  std::error_code none;
  return fs::exists(dir / "agents" / plan.name() / "recipe.toml", none);
}

// The settings of one agent of a job: the set's, those for it alone, and what its place in an ensemble adds. A run that
// is there already keeps its own, and takes what was given now.
void take_settings(Resolver& resolver, const AgentJob& plan, const std::string& agent, const ResolvedRecipe& whole,
                   const fs::path& dir) {
  if (is_there(dir, plan)) {
    const fs::path recipe_toml = dir / "agents" / plan.name() / "recipe.toml";
    const FileBytes text = read_whole_file(FileSystem::real(), recipe_toml, 1 << 20);
    resolver.apply_toml(text.text(), recipe_toml.string());
    resolver.take(*whole.resolver, agent, 2);
    return;
  }
  resolver.take(*whole.resolver, agent);
  resolver.set("agent", fmt::format("{}", fmt::join(plan.agents, ",")), "web-test");
  for (const auto& [key, value] : plan.own) resolver.set(key, value, "--strategy ensemble");
}

nlohmann::json values_of(const AgentJob& plan, const std::string& agent, const ResolvedRecipe& whole,
                         const fs::path& dir) {
  WebAgentSettings settings;
  Resolver resolver(settings);
  take_settings(resolver, plan, agent, whole, dir);
  nlohmann::json values = resolver.to_json();
  values.erase("agent");
  return values;
}

// Runs of several agents that are in the folder take the place of their agents' own; also of those not asked for.
std::vector<AgentJob> with_those_there(std::vector<AgentJob> plans, const fs::path& dir, const JobSet::Say& say) {
  std::error_code none;
  if (dir.empty() || !fs::is_directory(dir / "agents", none)) return plans;
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(dir / "agents", none)) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  for (const fs::path& folder : folders) {
    if (folder.filename().string().find('+') == std::string::npos || !fs::exists(folder / "recipe.toml")) continue;
    AgentJob there{agent_runs_of(folder).names()};
    const std::string name = folder.filename().string();
    if (const size_t dash = name.find('-'); dash != std::string::npos) there.kind = name.substr(dash + 1);
    const auto is_of = [&](const AgentJob& plan) {
      return plan.kind == there.kind && std::ranges::find(there.agents, plan.agents.front()) != there.agents.end();
    };
    const auto at = std::ranges::find_if(plans, is_of);
    if (at == plans.end()) continue;
    there.pin = at->pin;
    const auto wanted = std::ranges::count_if(plans, is_of);
    if (wanted < static_cast<int64_t>(there.agents.size()))
      say(fmt::format("{} go on together: they are one run", fmt::join(there.agents, ", ")));
    *at = there;
    std::erase_if(plans, [&](const AgentJob& plan) { return plan.agents.size() == 1 && is_of(plan); });
  }
  return plans;
}

// ---- which agents share a run, and where: by forecast (jobs/set_plan.h) ----

double steps_left(const AgentJob& plan, const WebAgentSettings& settings, const fs::path& dir) {
  if (!is_there(dir, plan)) return static_cast<double>(settings.steps);
  SetJob job;
  job.dir = dir / "agents" / plan.name();
  return static_cast<double>(std::max<int64_t>(0, settings.steps - saved_step(job)));
}

// A run that is there keeps its agents; those still to begin may share one where they differ in nothing but their
// agent.
SetQuestion question_of(const std::vector<AgentJob>& plans, const ResolvedRecipe& whole,
                        const std::vector<DeviceSpec>& gpus, const fs::path& dir, const SetKnown& known) {
  const auto& settings = dynamic_cast<const WebTestSettings&>(*whole.settings);
  using Together = SetQuestion::Together;
  SetQuestion question;
  const bool share = can_share(settings);
  question.together = !share ? Together::kOff : settings.together == "on" ? Together::kOn : Together::kFree;
  question.devices = set_devices(gpus, settings, known);
  std::vector<std::pair<std::string, nlohmann::json>> sorts;
  for (const AgentJob& plan : plans) {
    WebAgentSettings own;
    Resolver resolver(own);
    take_settings(resolver, plan, plan.agents.front(), whole, dir);
    SetUnit unit = unit_of(plan, own, steps_left(plan, own, dir), gpus, known);
    if (unit.steps > 0) question.seconds_beside += kSecondsBesideSteps * unit.agents;
    if (share && plan.agents.size() == 1 && !is_there(dir, plan)) {
      nlohmann::json values = resolver.to_json();
      values.erase("agent");
      const std::pair sort(plan.kind, std::move(values));
      unit.alike = static_cast<int>(std::ranges::find(sorts, sort) - sorts.begin());
      if (std::cmp_equal(unit.alike, sorts.size())) sorts.push_back(sort);
    }
    question.units.push_back(std::move(unit));
  }
  return question;
}

// The runs in the order of their first agents, each with its agents in the user's order.
std::vector<PlannedRun> in_users_order(std::vector<PlannedRun> runs) {
  for (PlannedRun& run : runs) std::sort(run.units.begin(), run.units.end());
  std::ranges::sort(runs, {}, [](const PlannedRun& run) { return run.units.front(); });
  return runs;
}

// A job for each run. The first one on a GPU begins there; of those after it the schedule knows more by then.
std::vector<AgentJob> jobs_of_runs(const std::vector<AgentJob>& plans, const std::vector<PlannedRun>& runs,
                                   const std::vector<int>& used, bool pin) {
  std::vector<AgentJob> jobs;
  for (const PlannedRun& run : runs) {
    AgentJob job = plans[static_cast<size_t>(run.units.front())];
    for (size_t i = 1; i < run.units.size(); ++i)
      job.agents.push_back(plans[static_cast<size_t>(run.units[i])].agents.front());
    const bool asked = std::ranges::any_of(run.units, [&](int u) { return plans[static_cast<size_t>(u)].pin >= 0; });
    const auto at = static_cast<int>(std::ranges::find(used, run.devices.front()) - used.begin());
    job.pin = asked || (pin && run.begin == 0 && run.end > 0) ? at : -1;
    jobs.push_back(std::move(job));
  }
  return jobs;
}

// The GPUs that have something to do; all of them where nobody has.
std::vector<int> used_devices(const SetPlan& plan, size_t count) {
  SetPlan busy = plan;
  std::erase_if(busy.runs, [](const PlannedRun& run) { return run.end <= run.begin; });
  std::vector<int> used = busy.devices();
  if (used.empty())
    for (size_t d = 0; d < count; ++d) used.push_back(static_cast<int>(d));
  return used;
}

// What the schedule reckons with until it has measured: as the plan does.
void assume(PreparedSet& set, const ChosenPlan& chosen, const std::vector<PlannedRun>& runs,
            const std::vector<DeviceSpec>& gpus) {
  set.schedule.start_seconds = chosen.question.devices.front().start_seconds;
  set.seconds_beside = chosen.question.seconds_beside;
  double longest = 0;
  for (size_t j = 0; j < set.jobs.size(); ++j) {
    const PlannedRun& run = runs[j];
    const SetUnit& unit = chosen.question.units[static_cast<size_t>(run.units.front())];
    const int device = run.devices.front();
    const double alone = unit.costs[static_cast<size_t>(device)].alone();
    WebAgentSettings one = dynamic_cast<const WebAgentSettings&>(*set.jobs[j].settings);
    one.agent = one.agents().front();
    const double flops = flops_of_step(one, true), speed = gpus[static_cast<size_t>(device)].speed;
    // A model has one speed, by its first run; the others' arithmetic is what makes their steps as long as planned.
    const auto model =
        set.assumed.emplace(Estimate::model_of(gpus[static_cast<size_t>(device)]), flops / alone / speed);
    set.jobs[j].job.flops = run.step_seconds * model.first->second * speed;
    set.jobs[j].save_seconds = run.agents * unit.save_seconds;
    if (run.end - run.begin <= longest) continue;
    longest = run.end - run.begin;
    const double single = step_seconds(chosen.question, unit, run.agents, {device});
    const double pair = step_seconds(chosen.question, unit, run.agents, {device, device});
    set.schedule.combine_share = std::clamp(1 - single / pair / 2, 0.0, .9);
  }
}

// The same where the runs are not chosen: by one agent on the first GPU.
void assume_gpus(PreparedSet& set, const WebTestSettings& settings, const SetKnown& known) {
  SetQuestion question;
  question.devices = set_devices(set.devices, settings, known);
  set.schedule.start_seconds = question.devices.front().start_seconds;
  for (PreparedJob& job : set.jobs) {
    WebAgentSettings one = dynamic_cast<const WebAgentSettings&>(*job.settings);
    const auto agents = static_cast<int>(one.agents().size());
    one.agent = one.agents().front();
    const SetUnit unit = unit_of({{one.agent}}, one, static_cast<double>(one.steps), set.devices, known);
    job.save_seconds = agents * unit.save_seconds;
    set.seconds_beside += kSecondsBesideSteps * agents;
    if (!set.assumed.empty()) continue;
    for (size_t d = 0; d < set.devices.size(); ++d)
      set.assumed.emplace(Estimate::model_of(set.devices[d]),
                          flops_of_step(one, true) / unit.costs[d].alone() / set.devices[d].speed);
    const double pair = step_seconds(question, unit, agents, {0, 0});
    set.schedule.combine_share = std::clamp(1 - step_seconds(question, unit, agents, {0}) / pair / 2, 0.0, .9);
  }
}

// Cores save one run while they train the next: the last save is waited for, and then all agents are judged.
void assume_cores(PreparedSet& set) {
  double last_save = 0;
  for (const PreparedJob& job : set.jobs) {
    WebAgentSettings one = dynamic_cast<const WebAgentSettings&>(*job.settings);
    const auto agents = static_cast<double>(one.agents().size());
    one.agent = one.agents().front();
    const SetUnit unit = unit_of({{one.agent}}, one, static_cast<double>(one.steps), {}, {});
    last_save = std::max(last_save, agents * unit.save_seconds);
    set.seconds_beside += kJudgedOnCore * agents;
  }
  set.seconds_beside += last_save;
}

// Those that are still to begin and differ in nothing but their agent, side by side.
std::vector<AgentJob> batched(std::vector<AgentJob> plans, const ResolvedRecipe& whole, const fs::path& dir, int runs) {
  std::vector<AgentJob> out;
  while (runs > 0 && !plans.empty()) {
    const AgentJob first = plans.front();
    std::vector<AgentJob> alike;
    const nlohmann::json values = values_of(first, first.agents.front(), whole, dir);
    const auto is_alike = [&](const AgentJob& plan) {
      return plan.kind == first.kind && plan.pin == first.pin && plan.agents.size() == 1 && !is_there(dir, plan) &&
             values_of(plan, plan.agents.front(), whole, dir) == values;
    };
    if (is_alike(first)) {
      std::ranges::copy_if(plans, std::back_inserter(alike), is_alike);
      std::erase_if(plans, is_alike);
      for (AgentJob& job : side_by_side(alike, runs)) out.push_back(std::move(job));
    } else {
      out.push_back(first);
      plans.erase(plans.begin());
    }
  }
  out.insert(out.end(), plans.begin(), plans.end());
  return out;
}

PreparedJob prepare_job(const AgentJob& plan, const ResolvedRecipe& whole, const fs::path& dir, bool on_gpus) {
  PreparedJob one;
  one.job.name = plan.name();
  one.job.dir = dir / "agents" / one.job.name;
  one.job.pin = plan.pin;
  auto settings = std::make_unique<WebAgentSettings>();
  const WebAgentSettings& agent_settings = *settings;
  one.settings = std::move(settings);
  one.resolver = std::make_unique<Resolver>(*one.settings);
  one.is_new = !is_there(dir, plan);
  take_settings(*one.resolver, plan, plan.agents.front(), whole, dir);
  for (const std::string& agent : plan.agents)
    if (values_of(plan, agent, whole, dir) != values_of(plan, plan.agents.front(), whole, dir))
      throw ConfigError(fmt::format("{} and {} can't have settings of their own any more", plan.agents.front(), agent),
                        fmt::format("they learn side by side in one run, {}", one.job.dir.string()),
                        "give the setting without an agent's name: it holds for all of them");
  const auto manifest = one.is_new ? std::nullopt : newest_manifest(one.job.dir / "checkpoints");
  settle_job(one, "web-test", manifest ? &manifest->settings : nullptr);
  one.job.flops = flops_of_step(agent_settings, on_gpus);
  if (plan.agents.size() == 1) {
    one.job.agent = plan.agents.front();
    one.job.rule_score = rule_score(one.job.agent);
    return one;
  }
  for (const std::string& agent : plan.agents)
    one.job.members.push_back({plan.member_name(agent), agent, rule_score(agent)});
  return one;
}

// Agents that learned side by side have weights of their own in one run, and so a digest of their own: the one that
// each would have alone.
void add_digests(const std::vector<SetJob>& jobs, std::vector<JobStatus>& status) {
  for (size_t j = 0; j < jobs.size(); ++j) {
    if (jobs[j].dir.filename() == jobs[j].name || status[j].step == 0) continue;
    try {
      status[j].digest = load_agent(jobs[j].dir, jobs[j].agent).digest;
    } catch (const Error&) {  // stopped before its first checkpoint
    }
  }
}

class WebTestSet : public JobSet {
 public:
  std::string job_recipe() const override { return kAgentRecipe; }

  PreparedSet prepare(ResolvedRecipe& recipe, const Machine& machine, const fs::path& dir, const SetKnown& known,
                      const Say& say) const override {
    return prepare_on(recipe, machine, dir, {.devices = {}, .known = known}, say);
  }

  PreparedSet prepare_at(ResolvedRecipe& recipe, const Machine& machine, const SetPlace& place) const override {
    auto& settings = dynamic_cast<WebTestSettings&>(*recipe.settings);
    std::vector<std::string> pins;
    for (const auto& [agent, device] : pins_named(settings.assign, 1024))
      if (std::cmp_less(device, place.count)) pins.push_back(fmt::format("{}={}", agent, device));
    const std::string old_devices = std::exchange(settings.devices, place.devices);
    const std::string old_assign = std::exchange(settings.assign, fmt::format("{}", fmt::join(pins, ",")));
    const std::string old_together =
        std::exchange(settings.together, place.job_by_job ? std::string("off") : settings.together);
    PreparedSet set = prepare_on(recipe, machine, "", place, [](const std::string&) {});
    settings.devices = old_devices;
    settings.assign = old_assign;
    settings.together = old_together;
    return set;
  }

  // By greedy episodes, as `tandem eval` does; so the best of an ensemble is chosen by these.
  bool judge(const std::vector<SetJob>& jobs, std::vector<JobStatus>& status) const override {
    add_digests(jobs, status);
    bool all = true;
    for (size_t j = 0; j < jobs.size(); ++j) {
      if (status[j].state != JobStatus::State::kDone) {
        all = false;
        continue;
      }
      try {
        const TrainedAgent trained = load_agent(jobs[j].dir, jobs[j].agent);
        const Evaluation greedy = play_net(trained, {.episodes = kJudgedEpisodes});
        status[j].average_return = greedy.mean;
        status[j].score = kWebScale[web_agent_of(jobs[j].agent)].score(greedy.mean);
      } catch (const Error&) {
        all = false;
      }
    }
    return all;
  }

  std::string score_words(bool judged) const override {
    return judged ? fmt::format("score: 0 random play, 1 the solver; of {} greedy episodes", kJudgedEpisodes)
                  : "score: 0 random play, 1 the solver; of the last episodes of training, some actions still at "
                    "random";
  }

  double seconds_beside_steps() const override { return kSecondsBesideSteps; }

  std::vector<CommandExample> next_commands(const std::string& run, const std::string& agent) const override {
    return {
        {fmt::format("eval {}", run), "how good they are, with intervals"},
        {fmt::format("act {} --agent {} < states.jsonl", run, agent), "an agent's answers, a JSON line for each state"},
        {fmt::format("report {}", run), "the page again, after eval with its figures"}};
  }

 private:
  // Of `place` the settings have the devices already.
  PreparedSet prepare_on(ResolvedRecipe& recipe, const Machine& machine, const fs::path& dir, const SetPlace& place,
                         const Say& say) const {
    const auto& settings = dynamic_cast<const WebTestSettings&>(*recipe.settings);
    settings.check();
    PreparedSet set;
    set.job_recipe = kAgentRecipe;
    set.strategy = settings.strategy;
    set.max_time = settings.max_time;
    set.devices = parse_devices(settings.devices, machine, 1024);
    set.schedule.strategy = settings.strategy == "ddp" ? Strategy::kDdp : Strategy::kAgents;
    for (const Assignment one : {Assignment::kBalanced, Assignment::kSpecialized, Assignment::kHierarchical})
      if (settings.assignment == name_of(one)) set.schedule.assignment = one;
    std::vector<AgentJob> plans = jobs_of_agents(settings, static_cast<int>(set.devices.size()));
    plans = with_those_there(std::move(plans), dir, say);
    if (plans_by_forecast(settings, set.devices)) {
      prepare_chosen(set, plans, recipe, dir, place);
    } else {
      plans = batched(std::move(plans), recipe, dir, batched_runs(settings, set.devices));
      const bool on_gpus = std::ranges::all_of(
          set.devices, [](const DeviceSpec& device) { return device.kind == DeviceSpec::Kind::kCuda; });
      for (const AgentJob& plan : plans) set.jobs.push_back(prepare_job(plan, recipe, dir, on_gpus));
      if (on_gpus)
        assume_gpus(set, settings, place.known);
      else
        assume_cores(set);
    }
    number_kinds(set);
    return set;
  }

  void prepare_chosen(PreparedSet& set, const std::vector<AgentJob>& plans, ResolvedRecipe& recipe, const fs::path& dir,
                      const SetPlace& place) const {
    const std::vector<DeviceSpec> gpus = set.devices;
    std::vector<std::string> agents;
    for (const AgentJob& plan : plans) agents.insert(agents.end(), plan.agents.begin(), plan.agents.end());
    ChosenPlan chosen{.question = question_of(plans, recipe, gpus, dir, place.known),
                      .choice = {},
                      .one_gpu = {},
                      .left_out = {},
                      .by = source_of_costs(gpus, place.known),
                      .by_trials = all_tried_on(gpus, place.known, agents),
                      .memory = {}};
    refuse_what_fits_nowhere(chosen.question, recipe.settings->memory_fraction);
    chosen.memory = memory_words(chosen.question);
    chosen.question.most_devices = 1;
    chosen.one_gpu = choose_set_plan(chosen.question).best;  // empty where agents are pinned to several
    chosen.question.most_devices = place.most_devices;
    chosen.choice = choose_set_plan(chosen.question);
    if (chosen.choice.best.runs.empty()) {  // pins need more of them
      chosen.question.most_devices = 0;
      chosen.choice = choose_set_plan(chosen.question);
    }
    const bool searched = set.schedule.assignment == Assignment::kSearched;
    const std::vector<PlannedRun> runs = in_users_order(chosen.choice.best.runs);
    chosen.choice.best.runs = runs;
    const std::vector<int> used = used_devices(searched ? chosen.choice.best : SetPlan{}, gpus.size());
    set.devices.clear();
    for (size_t d = 0; d < gpus.size(); ++d)
      if (std::ranges::find(used, static_cast<int>(d)) != used.end())
        set.devices.push_back(gpus[d]);
      else
        chosen.left_out.push_back(gpus[d].name());
    for (const AgentJob& job : jobs_of_runs(plans, runs, used, searched))
      set.jobs.push_back(prepare_job(job, recipe, dir, true));
    assume(set, chosen, runs, gpus);
    if (searched) set.chosen = std::move(chosen);  // else the runs are chosen, and where they go is the assignment's
  }
};

}  // namespace

std::shared_ptr<const JobSet> web_test_set() { return std::make_shared<WebTestSet>(); }

}  // namespace tandem
