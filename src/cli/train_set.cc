#include "cli/train_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/clock.h"
#include "base/errors.h"
#include "base/shell_word.h"
#include "command/disk_need.h"
#include "command/sources.h"
#include "command/start.h"
#include "config/members.h"
#include "config/units.h"
#include "explain/remedies.h"
#include "jobs/agents_file.h"
#include "jobs/runner.h"
#include "jobs/set_display.h"
#include "jobs/set_report.h"
#include "launch/run_lock.h"
#include "runs/recipe_file.h"
#include "runs/run_removal.h"
#include "telemetry/human.h"
#include "telemetry/run_summary.h"
#include "tools/plan/plan.h"

extern char** environ;

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Variables that set a key: their values are in the jobs' recipes, and flags were stronger.
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

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json json_of(const SetJob& job, const JobStatus& status) {
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
          {"failure", status.state == JobStatus::State::kFailed ? Json(status.failure) : Json()}};
}

std::string digest_of(const std::vector<SetJob>& jobs, const std::vector<JobStatus>& status) {
  std::vector<std::pair<std::string, std::string>> digests;
  for (size_t j = 0; j < jobs.size(); ++j) digests.emplace_back(jobs[j].name, status[j].digest);
  return set_digest(std::move(digests));
}

// Each job has its own; one where all are equal.
std::string kinds_of(const std::vector<JobStatus>& status) {
  std::set<std::string> kinds;
  for (const JobStatus& one : status)
    if (!one.kind.empty()) kinds.insert(one.kind);
  return fmt::format("{}", fmt::join(kinds, ", "));
}

// What starts this program from here: its name where PATH has it, else its path.
std::string typed_program(const std::string& name) {
  std::error_code none;
  const fs::path self = fs::read_symlink("/proc/self/exe", none);
  if (none) return name;
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (!folder.empty() && fs::equivalent(fs::path(folder) / name, self, none)) return name;
  const fs::path relative = self.lexically_relative(fs::current_path(none));
  const bool below = !relative.empty() && relative.begin()->string() != "..";
  return shell_word(!below ? self.string() : relative.has_parent_path() ? relative.string() : "./" + relative.string());
}

struct SetSteps {
  int64_t step = 0, steps = 0;
};
SetSteps steps_of(const std::vector<SetJob>& jobs, const std::vector<JobStatus>& status) {
  SetSteps all;
  for (size_t j = 0; j < jobs.size(); ++j) all.step += status[j].step, all.steps += jobs[j].steps;
  return all;
}

// One start of a set, from its first lines to its report. Tables and files have a row for each model (rows_of), of
// which several may be one job.
class SetTraining {
 public:
  SetTraining(const Command& command, const ResolvedRecipe& recipe, const JobSet& kind, PreparedSet& set,
              const RunFolder& run, std::string recipe_toml)
      : command_(command),
        recipe_(recipe),
        kind_(kind),
        set_(set),
        run_(run),
        recipe_toml_(std::move(recipe_toml)),
        jobs_(set.plain()) {
    facts_ = {.strategy = set.strategy, .assignment = std::string(name_of(set.schedule.assignment)), .devices = {}};
    for (const DeviceSpec& device : set.devices) facts_.devices.push_back(device.name());
  }

  // `planned_seconds`: by `tandem plan`, before anything ran.
  int run(std::optional<double> planned_seconds) {
    const fs::path speeds_file = runs_root(command_.arguments) / "speeds.json";
    Estimate estimate = estimate_of(set_, speeds_file);
    write_rows(std::vector<JobStatus>(jobs_.size()), {});
    run_.write_env({{"tandem", command_.context.version}});
    say_start(estimate);
    run_.write_status({.status = "running"});
    command_.output.flush();
    SetOutcome outcome = run_jobs(std::move(estimate));
    if (const std::string words = put_recipe_right(run_.dir(), recipe_toml_, "the set"); !words.empty())
      command_.output.warn(words);
    const SetRows rows = rows_of(jobs_, outcome.jobs);
    outcome.jobs = rows.status;
    for (Segment& part : outcome.course) part.job = rows.first[static_cast<size_t>(part.job)];
    const double judged_from = monotonic_seconds();
    facts_.judged = kind_.judge(rows.jobs, outcome.jobs);
    outcome.seconds += monotonic_seconds() - judged_from;
    facts_.seconds = outcome.seconds;
    facts_.forecast_seconds = outcome.forecast_seconds;
    write_agents_file(run_.dir(), facts_, rows.jobs, outcome.jobs, outcome.course);
    write_end(rows.jobs, outcome, planned_seconds);
    write_set_report(run_.dir());
    keep_speeds(speeds_file, outcome);
    if (command_.output.json()) command_.output.object(end_json(rows.jobs, outcome));
    say_end(rows.jobs, outcome);
    return outcome.code;
  }

 private:
  SetSteps write_rows(const std::vector<JobStatus>& status, std::vector<Segment> course) const {
    const SetRows rows = rows_of(jobs_, status);
    for (Segment& part : course) part.job = rows.first[static_cast<size_t>(part.job)];
    write_agents_file(run_.dir(), facts_, rows.jobs, rows.status, course);
    return steps_of(rows.jobs, rows.status);
  }

  void say_start(const Estimate& estimate) const {
    const std::vector<double> speeds = estimate.speeds();
    std::vector<std::string> devices;
    for (size_t d = 0; d < speeds.size(); ++d)
      devices.push_back(speeds[d] > 0.995 ? set_.devices[d].name()
                                          : fmt::format("{} (speed {:.2f})", set_.devices[d].name(), speeds[d]));
    command_.output.say(fmt::format("run     {}", run_.dir().string()));
    command_.output.say(
        fmt::format("agents  {}, strategy {}, assignment {}", set_.words(), facts_.strategy, facts_.assignment));
    command_.output.say(fmt::format("devices {}", fmt::join(devices, ", ")));
    if (const auto need = disk_need(find_recipe(command_.context.recipes, recipe_.name), *recipe_.settings)) {
      command_.output.say(fmt::format("disk    {}", disk_text(*need)));
      if (const auto warning = disk_warning(*need, run_.dir())) command_.output.warn(*warning);
    }
    for (const std::string& line : set_.choice_lines()) command_.output.say(line);
    for (const std::string& line : set_.bits()) command_.output.say(fmt::format("bits    {}", line));
  }

  SetOutcome run_jobs(Estimate estimate) const {
    std::error_code none;
    const fs::path self = fs::read_symlink("/proc/self/exe", none);
    const auto note = [this](const std::vector<JobStatus>& status, const std::vector<Segment>& course) {
      try {
        const SetSteps all = write_rows(status, course);
        update_run_json(run_.dir(), {{"step", all.step}, {"total_steps", all.steps}});
      } catch (const IoError&) {  // a full disk: the jobs' own runs say so, and go on
      }
    };
    return run_set({.title = recipe_.name,
                    .dir = run_.dir(),
                    .jobs = jobs_,
                    .devices = set_.devices,
                    .program = std::make_shared<WorkerProgram>(self),
                    .version = command_.context.version,
                    .unset_variables = variables_of(*recipe_.resolver),
                    .schedule = set_.schedule,
                    .estimate = std::move(estimate),
                    .save_seconds = set_.save_seconds(),
                    .seconds_beside = set_.seconds_beside,
                    .quiet = command_.output.quiet(),
                    .json = command_.output.json(),
                    .color = command_.output.color(),
                    .max_seconds = parse_duration(set_.max_time).value_or(0),
                    .advice = fmt::format("{} resume {}", command_.context.program, shell_word(run_.id())),
                    .note = note});
  }

  void write_end(const std::vector<SetJob>& jobs, const SetOutcome& outcome,
                 std::optional<double> planned_seconds) const {
    Json extra = {{"forecast_seconds", number(outcome.forecast_seconds)}, {"joins", outcome.joins}};
    if (planned_seconds) {
      extra["plan_seconds"] = *planned_seconds;
      extra["plan_error"] = *planned_seconds / outcome.seconds - 1;
      if (outcome.status == "done")
        keep_outcome(forecast_cache(), {.run = run_.id(),
                                        .recipe = recipe_.name,
                                        .made = utc_stamp(),
                                        .workers = static_cast<int>(set_.devices.size()),
                                        .forecast_seconds = *planned_seconds,
                                        .took_seconds = outcome.seconds});
    }
    for (size_t j = 0; j < jobs.size(); ++j)
      if (std::isfinite(outcome.jobs[j].score)) extra[jobs[j].name + "/score"] = outcome.jobs[j].score;
    run_.write_status({.status = outcome.status,
                       .step = steps_of(jobs, outcome.jobs).step,
                       .seconds = outcome.seconds,
                       .digest = outcome.status == "done" ? digest_of(jobs, outcome.jobs) : "",
                       .kind = kinds_of(outcome.jobs),
                       .exit_code = outcome.code,
                       .extra = extra});
  }

  Json end_json(const std::vector<SetJob>& jobs, const SetOutcome& outcome) const {
    const std::vector<JobStatus>& status = outcome.jobs;
    Json agents = Json::object();
    for (size_t j = 0; j < jobs.size(); ++j) {
      const size_t best = best_job(jobs, status, jobs[j].agent);
      Json members = agents.contains(jobs[j].agent) ? agents[jobs[j].agent]["members"] : Json();
      if (facts_.strategy == "ensemble") members[jobs[j].name] = json_of(jobs[j], status[j]);
      agents[jobs[j].agent] = json_of(jobs[best], status[best]);
      if (facts_.strategy == "ensemble") agents[jobs[j].agent]["members"] = members;
    }
    const SetSteps all = steps_of(jobs, status);
    return {{"run", run_.id()},
            {"dir", fs::absolute(run_.dir()).string()},
            {"recipe", recipe_.name},
            {"status", outcome.status},
            {"strategy", facts_.strategy},
            {"assignment", facts_.assignment},
            {"step", all.step},
            {"total_steps", all.steps},
            {"seconds", outcome.seconds},
            {"forecast_seconds", number(outcome.forecast_seconds)},
            {"joins", outcome.joins},
            {"digest", digest_of(jobs, status)},
            {"kind", kinds_of(status)},
            {"agents", agents},
            {"exit_code", outcome.code}};
  }

  void say_end(const std::vector<SetJob>& jobs, const SetOutcome& outcome) const {
    command_.output.say("");
    command_.output.say(set_table(jobs, outcome.jobs));
    const auto* members = dynamic_cast<const HasMembers*>(recipe_.settings.get());
    if (facts_.strategy == "ensemble" && members) {
      for (const auto& agent : members->members()) {
        const size_t best = best_job(jobs, outcome.jobs, agent);
        if (best < jobs.size()) command_.output.say(fmt::format("best {:<13} {}", agent, jobs[best].name));
      }
    }
    command_.output.say(kind_.score_words(facts_.judged));
    if (outcome.status == "done")
      command_.output.say(fmt::format(
          "all done after {}; forecast {}{}", duration_words(outcome.seconds), duration_words(outcome.forecast_seconds),
          outcome.joins
              ? fmt::format("; devices joined {} time{} at the tail", outcome.joins, outcome.joins == 1 ? "" : "s")
              : ""));
    else
      command_.output.say(fmt::format("{}: go on with `{} resume {}`", outcome.status, command_.context.program,
                                      shell_word(run_.id())));
    command_.output.say(fmt::format("report  {}", (run_.dir() / "report.html").string()));
    command_.output.say(fmt::format("disk    {} in {}", bytes_text(folder_bytes(run_.dir())), run_.dir().string()));
    if (outcome.status == "done" && !jobs.empty()) say_next(jobs.front().agent);
  }

  // Commands to copy.
  void say_next(const std::string& agent) const {
    const std::string program = typed_program(command_.context.program);
    const std::string run = shell_word(run_.dir().filename() == run_.id() ? run_.id() : run_.dir().string());
    const std::string root =
        command_.arguments.runs_root ? " --runs-root " + shell_word(*command_.arguments.runs_root) : "";
    command_.output.say("next");
    for (const auto& [words, what] : kind_.next_commands(run, agent))
      command_.output.say(fmt::format("  {} {}{}   # {}", program, words, root, what));
  }

  const Command& command_;
  const ResolvedRecipe& recipe_;
  const JobSet& kind_;
  PreparedSet& set_;
  const RunFolder& run_;
  const std::string recipe_toml_;  // as it began
  std::vector<SetJob> jobs_;
  SetFacts facts_;
};

PreparedSet prepare(const Command& command, ResolvedRecipe& recipe, const JobSet& jobs, const fs::path& dir) {
  if (command.ranks)
    throw ConfigError(fmt::format("{} can't be started by another launcher", recipe.name),
                      "its jobs are runs of one machine",
                      fmt::format("start it once, without torchrun, mpirun or srun; or train one of them with {}",
                                  jobs.job_recipe()));
  return jobs.prepare(recipe, command.context.machine, dir, known_of_set(command, jobs, recipe),
                      [&](const std::string& line) { command.output.say(line); });
}

void show_dry(const Command& command, const ResolvedRecipe& recipe, PreparedSet set) {
  const Estimate estimate = estimate_of(set, runs_root(command.arguments) / "speeds.json");
  show_set(command, recipe, set, estimate);
}

}  // namespace

int train_set(const Command& command, ResolvedRecipe& recipe, const JobSet& jobs) {
  if (command.arguments.dry_run) {
    show_dry(command, recipe, prepare(command, recipe, jobs, ""));
    return 0;
  }
  check_worker_program(command.context);
  prepare(command, recipe, jobs, "");  // refused before there is a folder
  std::optional<fs::path> exact_dir;
  if (command.arguments.run_dir) exact_dir = *command.arguments.run_dir;
  const RunFolder run = RunFolder::create(runs_root(command.arguments), recipe.name, exact_dir);
  if (exact_dir) run.link_into(runs_root(command.arguments));
  std::error_code none;
  fs::remove(run.checkpoints(), none);  // its jobs have theirs
  const RunLock lock(run.dir());
  const std::string recipe_toml = recipe.resolver->to_toml(recipe.name);
  run.write_recipe(recipe_toml);
  PreparedSet set = prepare(command, recipe, jobs, run.dir());
  write_jobs(set);
  return SetTraining(command, recipe, jobs, set, run, recipe_toml).run(forecast_of_set(command, set));
}

int resume_set(const Command& command, ResolvedRecipe& recipe, const JobSet& jobs, const RunFolder& run) {
  if (command.arguments.dry_run) {
    show_dry(command, recipe, prepare(command, recipe, jobs, run.dir()));
    return 0;
  }
  check_worker_program(command.context);
  const RunLock lock(run.dir());
  keep_recipes_begun(run.dir(), [&](const std::string& line) { command.output.warn(line); });
  PreparedSet set = prepare(command, recipe, jobs, run.dir());
  const std::string recipe_toml = recipe.resolver->to_toml(recipe.name);
  run.write_recipe(recipe_toml);
  write_jobs(set);
  return SetTraining(command, recipe, jobs, set, run, recipe_toml).run(std::nullopt);  // what is left is no whole set
}

}  // namespace tandem
