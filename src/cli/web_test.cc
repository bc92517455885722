#include "cli/web_test.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/clock.h"
#include "base/errors.h"
#include "cli/plan.h"
#include "cli/start.h"
#include "config/units.h"
#include "jobs/agents_file.h"
#include "jobs/runner.h"
#include "jobs/set_display.h"
#include "jobs/set_report.h"
#include "launch/run_lock.h"
#include "recipes/web_evaluation.h"
#include "telemetry/atomic_file.h"
#include "world/scale.h"

extern char** environ;

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Variables that set a key: their values are in the agents' recipes, and flags were stronger.
std::vector<std::string> variables_of(const Resolver& resolver) {
  std::set<std::string> keys;
  for (const KeyInfo& key : resolver.keys()) {
    std::string name = "TANDEM_";
    for (const char c : key.name)
      name += c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    keys.insert(name);
  }
  std::vector<std::string> found;
  for (char** entry = environ; *entry; ++entry) {
    const std::string name(*entry, std::strcspn(*entry, "="));
    if (keys.contains(name)) found.push_back(name);
  }
  return found;
}

constexpr int64_t kJudged = 300;  // episodes

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

// Return and score of those that are done, as `tandem eval` finds them; so the best of an ensemble is chosen by these.
// False where one could not be judged: it keeps the figures of its training.
bool judge_greedily(const std::vector<SetJob>& jobs, std::vector<JobStatus>& status) {
  bool all = true;
  for (size_t j = 0; j < jobs.size(); ++j) {
    if (status[j].state != JobStatus::State::kDone) {
      all = false;
      continue;
    }
    try {
      const TrainedAgent trained = load_agent(jobs[j].dir, jobs[j].agent);
      const Evaluation played = play_net(trained, {.episodes = kJudged});
      status[j].average_return = played.mean;
      status[j].score = kWebScale[web_agent_of(jobs[j].agent)].score(played.mean);
    } catch (const Error&) {
      all = false;
    }
  }
  return all;
}

nlohmann::json number(double value) { return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(); }

nlohmann::json json_of(const SetJob& job, const JobStatus& status) {
  return {{"run", job.dir.filename().string()},
          {"dir", fs::absolute(job.dir).string()},
          {"status", name_of(status.state)},
          {"step", status.step},
          {"steps", job.steps},
          {"seconds", number(status.seconds)},
          {"average_return", number(status.average_return)},
          {"score", number(status.score)},
          {"rule_score", number(job.rule_score)},
          {"digest", status.digest},
          {"kind", status.kind},
          {"devices", status.devices},
          {"restarts", status.restarts},
          {"failure", status.state == JobStatus::State::kFailed ? nlohmann::json(status.failure) : nlohmann::json()}};
}

std::string digest_of(const std::vector<SetJob>& jobs, const std::vector<JobStatus>& status) {
  std::vector<std::pair<std::string, std::string>> digests;
  for (size_t j = 0; j < jobs.size(); ++j) digests.emplace_back(jobs[j].name, status[j].digest);
  return set_digest(std::move(digests));
}

struct Totals {
  int64_t step = 0, steps = 0;
};
Totals totals_of(const std::vector<SetJob>& jobs, const std::vector<JobStatus>& status) {
  Totals totals;
  for (size_t j = 0; j < jobs.size(); ++j) totals.step += status[j].step, totals.steps += jobs[j].steps;
  return totals;
}

void tell_first_lines(const Command& command, const PreparedSet& set, const RunFolder& run, const Estimate& estimate) {
  const std::vector<double> speeds = estimate.speeds();
  std::vector<std::string> devices;
  for (size_t d = 0; d < speeds.size(); ++d)
    devices.push_back(speeds[d] > 0.995 ? set.devices[d].name()
                                        : fmt::format("{} (speed {:.2f})", set.devices[d].name(), speeds[d]));
  command.output.say(fmt::format("run     {}", run.dir().string()));
  command.output.say(fmt::format("agents  {}, strategy {}, assignment {}", set.words(), set.settings->strategy,
                                 name_of(set.schedule.assignment)));
  command.output.say(fmt::format("devices {}", fmt::join(devices, ", ")));
}

// What the devices were measured to do, for the first forecast of the next run. A loss of it costs nothing.
void keep_speeds(const fs::path& file, const SetOutcome& outcome) {
  if (outcome.models.empty()) return;
  auto speeds = nlohmann::json::parse(read_small_file(file, 1 << 20).value_or(""), nullptr, false);
  if (!speeds.is_object()) speeds = nlohmann::json::object();
  for (const auto& [model, value] : outcome.models) speeds[model] = std::round(value);
  const auto seconds = [](double value) { return std::round(value * 1000) / 1000; };
  speeds[kCostsKey]["start_seconds"] = seconds(outcome.schedule.start_seconds);
  if (outcome.joins > 0) {
    speeds[kCostsKey]["join_seconds"] = seconds(outcome.schedule.join_seconds);
    speeds[kCostsKey]["hold_seconds"] = seconds(outcome.schedule.hold_seconds);
    speeds[kCostsKey]["combine_share"] = seconds(outcome.schedule.combine_share);
  }
  try {
    write_file_atomically(file, speeds.dump(2) + "\n", Durability::kProcessDeath);
  } catch (const IoError&) {
  }
}

void tell_end(const Command& command, const RunFolder& run, const std::vector<SetJob>& jobs, const SetFacts& facts,
              const SetOutcome& outcome) {
  const std::vector<JobStatus>& status = outcome.jobs;  // rows, as `jobs` are
  if (command.output.json()) {
    nlohmann::json agents = nlohmann::json::object();
    for (size_t j = 0; j < jobs.size(); ++j) {
      const size_t best = best_job(jobs, status, jobs[j].agent);
      nlohmann::json members = agents.contains(jobs[j].agent) ? agents[jobs[j].agent]["members"] : nlohmann::json();
      if (facts.strategy == "ensemble") members[jobs[j].name] = json_of(jobs[j], status[j]);
      agents[jobs[j].agent] = json_of(jobs[best], status[best]);
      if (facts.strategy == "ensemble") agents[jobs[j].agent]["members"] = members;
    }
    const Totals totals = totals_of(jobs, status);
    command.output.object({{"run", run.id()},
                           {"dir", fs::absolute(run.dir()).string()},
                           {"recipe", "web-test"},
                           {"status", outcome.status},
                           {"strategy", facts.strategy},
                           {"assignment", facts.assignment},
                           {"step", totals.step},
                           {"total_steps", totals.steps},
                           {"seconds", outcome.seconds},
                           {"forecast_seconds", number(outcome.forecast_seconds)},
                           {"joins", outcome.joins},
                           {"digest", digest_of(jobs, status)},
                           {"kind", status.empty() ? "" : status.front().kind},
                           {"agents", agents},
                           {"exit_code", outcome.code}});
  }
  command.output.say("");
  command.output.say(set_table(jobs, status));
  if (facts.strategy == "ensemble") {
    for (const auto& agent : agents_named("")) {
      const size_t best = best_job(jobs, status, agent);
      if (best < jobs.size()) command.output.say(fmt::format("best {:<13} {}", agent, jobs[best].name));
    }
  }
  command.output.say(facts.judged ? fmt::format("score: 0 random play, 1 the solver; of {} greedy episodes", kJudged)
                                  : "score: 0 random play, 1 the solver; of the last episodes of training, some "
                                    "decisions still at random");
  if (outcome.status == "done")
    command.output.say(fmt::format(
        "all done after {}; forecast {}{}", duration_words(outcome.seconds), duration_words(outcome.forecast_seconds),
        outcome.joins
            ? fmt::format("; devices joined {} time{} at the tail", outcome.joins, outcome.joins == 1 ? "" : "s")
            : ""));
  else
    command.output.say(fmt::format("{}: go on with `{} resume {}`", outcome.status, command.context.program, run.id()));
  command.output.say(fmt::format("report  {}", (run.dir() / "report.html").string()));
}

int run_prepared(const Command& command, const ResolvedRecipe& recipe, PreparedSet& set, const RunFolder& run,
                 std::optional<double> planned_seconds) {
  const fs::path speeds_file = runs_root(command.arguments) / "speeds.json";
  Estimate estimate = estimate_of(set, speeds_file);
  const std::vector<SetJob> set_jobs = set.plain();
  SetFacts facts{
      .strategy = set.settings->strategy, .assignment = std::string(name_of(set.schedule.assignment)), .devices = {}};
  for (const DeviceSpec& device : set.devices) facts.devices.push_back(device.name());
  // All that is told is told of agents, a row each; several may be one job.
  const auto write_file = [&](const std::vector<JobStatus>& status, std::vector<Segment> course) {
    const SetRows rows = rows_of(set_jobs, status);
    for (Segment& part : course) part.job = rows.first[static_cast<size_t>(part.job)];
    write_agents_file(run.dir(), facts, rows.jobs, rows.status, course);
    return totals_of(rows.jobs, rows.status);
  };
  write_file(std::vector<JobStatus>(set_jobs.size()), {});
  run.write_env({{"tandem", command.context.version}});
  tell_first_lines(command, set, run, estimate);
  run.write_status({.status = "running"});
  command.output.flush();

  std::error_code none;
  fs::path self = fs::read_symlink("/proc/self/exe", none);
  SetOutcome outcome = run_set({.title = recipe.name,
                                .dir = run.dir(),
                                .jobs = set_jobs,
                                .devices = set.devices,
                                .program = std::make_shared<WorkerProgram>(self),
                                .version = command.context.version,
                                .unset_variables = variables_of(*recipe.resolver),
                                .schedule = set.schedule,
                                .estimate = std::move(estimate),
                                .quiet = command.output.quiet(),
                                .json = command.output.json(),
                                .color = command.output.color(),
                                .max_seconds = parse_duration(set.settings->max_time).value_or(0),
                                .advice = fmt::format("{} resume {}", command.context.program, run.id()),
                                .note = [&](const std::vector<JobStatus>& status, const std::vector<Segment>& course) {
                                  try {
                                    const Totals totals = write_file(status, course);
                                    update_run_json(run.dir(), {{"step", totals.step}, {"total_steps", totals.steps}});
                                  } catch (const IoError&) {  // a full disk: the agents' own runs say so, and go on
                                  }
                                }});
  const SetRows rows = rows_of(set_jobs, outcome.jobs);
  const std::vector<SetJob>& jobs = rows.jobs;
  outcome.jobs = rows.status;
  for (Segment& part : outcome.course) part.job = rows.first[static_cast<size_t>(part.job)];
  add_digests(jobs, outcome.jobs);
  facts.judged = judge_greedily(jobs, outcome.jobs);
  facts.seconds = outcome.seconds;
  facts.forecast_seconds = outcome.forecast_seconds;
  write_agents_file(run.dir(), facts, jobs, outcome.jobs, outcome.course);
  const Totals totals = totals_of(jobs, outcome.jobs);
  nlohmann::json extra = {{"forecast_seconds", number(outcome.forecast_seconds)}, {"joins", outcome.joins}};
  if (planned_seconds) {  // by `tandem plan`, before anything ran
    extra["plan_seconds"] = *planned_seconds;
    extra["plan_error"] = *planned_seconds / outcome.seconds - 1;
    if (outcome.status == "done")
      keep_outcome(forecast_cache(), {.run = run.id(),
                                      .recipe = recipe.name,
                                      .made = utc_stamp(),
                                      .workers = static_cast<int>(set.devices.size()),
                                      .forecast_seconds = *planned_seconds,
                                      .took_seconds = outcome.seconds});
  }
  for (size_t j = 0; j < jobs.size(); ++j)
    if (std::isfinite(outcome.jobs[j].score)) extra[jobs[j].name + "/score"] = outcome.jobs[j].score;
  run.write_status({.status = outcome.status,
                    .step = totals.step,
                    .seconds = outcome.seconds,
                    .digest = outcome.status == "done" ? digest_of(jobs, outcome.jobs) : "",
                    .kind = outcome.jobs.empty() ? "" : outcome.jobs.front().kind,
                    .exit_code = outcome.code,
                    .extra = extra});
  write_set_report(run.dir());
  keep_speeds(speeds_file, outcome);
  tell_end(command, run, jobs, facts, outcome);
  return outcome.code;
}

}  // namespace

bool is_web_test(const ResolvedRecipe& recipe) {
  return dynamic_cast<const WebTestSettings*>(recipe.settings.get()) != nullptr;
}

int train_web_test(const Command& command, ResolvedRecipe& recipe) {
  if (command.arguments.dry_run) {
    PreparedSet set = prepare_web_test(command, recipe, "");
    const Estimate estimate = estimate_of(set, runs_root(command.arguments) / "speeds.json");
    show_web_test(command, recipe, set, estimate);
    return 0;
  }
  check_worker_program(command.context);
  prepare_web_test(command, recipe, "");  // refused before there is a folder
  std::optional<fs::path> exact_dir;
  if (command.arguments.run_dir) exact_dir = *command.arguments.run_dir;
  const RunFolder run = RunFolder::create(runs_root(command.arguments), recipe.name, exact_dir);
  std::error_code none;
  fs::remove(run.checkpoints(), none);  // its agents have theirs
  const RunLock lock(run.dir());
  run.write_recipe(recipe.resolver->to_toml(recipe.name));
  PreparedSet set = prepare_web_test(command, recipe, run.dir());
  write_jobs(set);
  return run_prepared(command, recipe, set, run, forecast_of_set(command, set));
}

int resume_web_test(const Command& command, ResolvedRecipe& recipe, const RunFolder& run) {
  PreparedSet set = prepare_web_test(command, recipe, run.dir());
  if (command.arguments.dry_run) {
    const Estimate estimate = estimate_of(set, runs_root(command.arguments) / "speeds.json");
    show_web_test(command, recipe, set, estimate);
    return 0;
  }
  check_worker_program(command.context);
  const RunLock lock(run.dir());
  run.write_recipe(recipe.resolver->to_toml(recipe.name));
  write_jobs(set);
  return run_prepared(command, recipe, set, run, std::nullopt);  // what is left is no whole set
}

}  // namespace tandem
