// cli/show_set.cc -- `train --dry-run` of a set of jobs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/train_set.h"
#include "jobs/set_display.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

struct SetCourse {
  std::vector<PlannedJob> jobs;
  std::vector<double> speeds;
  Forecast forecast;
  double ideal_seconds;
};

// By the choice where there is one, which knows what each run takes on its GPU; else by the schedule.
Forecast forecast_of(const PreparedSet& set, const SetCourse& course) {
  if (!set.chosen) {
    Forecast scheduled = forecast(course.jobs, course.speeds, set.schedule);
    scheduled.seconds += set.seconds_beside;
    return scheduled;
  }
  const SetPlan& best = set.chosen->choice.best;
  Forecast chosen{.seconds = best.seconds, .mean_seconds = 0, .ends = {}, .course = {}};
  for (size_t j = 0; j < best.runs.size(); ++j)
    for (const int device : best.runs[j].devices) {
      const std::string& name = set.chosen->question.devices[static_cast<size_t>(device)].name;
      const auto at = std::ranges::find_if(set.devices, [&](const DeviceSpec& spec) { return spec.name() == name; });
      if (at != set.devices.end())
        chosen.course.push_back(
            {static_cast<int>(at - set.devices.begin()), static_cast<int>(j), best.runs[j].begin, best.runs[j].end});
    }
  std::ranges::stable_sort(chosen.course, {}, &Segment::begin);
  return chosen;
}

// Seconds of a job by itself.
double alone(const PreparedSet& set, const SetCourse& course, size_t j) {
  if (!set.chosen) return course.jobs[j].work;
  const PlannedRun& run = set.chosen->choice.best.runs[j];
  return run.end - run.begin;
}

void add_choice(const PreparedSet& set, Json& object) {
  if (!set.chosen) return;
  const auto plan = [&](const SetPlan& one) {
    return Json{{"seconds", one.seconds}, {"runs", words_of(set.chosen->question, one)}};
  };
  object["choice"] = plan(set.chosen->choice.best);
  object["choice"]["by"] = set.chosen->by;
  object["choice"]["exact"] = set.chosen->choice.exact;
  object["choice"]["least_seconds"] = set.chosen->choice.least_seconds;
  object["choice"]["memory"] = set.chosen->memory;
  if (set.chosen->choice.runner_up) object["runner_up"] = plan(*set.chosen->choice.runner_up);
  if (!set.chosen->one_gpu.runs.empty()) object["one_gpu"] = plan(set.chosen->one_gpu);
  object["left_out"] = set.chosen->left_out;
}

Json course_json(const ResolvedRecipe& recipe, const PreparedSet& set, const SetCourse& course) {
  Json jobs = Json::array(), devices = Json::array(), plan = Json::array();
  for (size_t j = 0; j < course.jobs.size(); ++j)
    jobs.push_back({{"name", set.jobs[j].job.name},
                    {"agent", models_of(set.jobs[j].job)},
                    {"steps", set.jobs[j].job.steps},
                    {"shards", set.jobs[j].job.shards},
                    {"seconds_alone", alone(set, course, j)},
                    {"values", set.jobs[j].resolver->to_json()}});
  for (size_t d = 0; d < course.speeds.size(); ++d)
    devices.push_back({{"device", set.devices[d].name()}, {"speed", course.speeds[d]}});
  for (const Segment& part : course.forecast.course)
    plan.push_back({{"device", set.devices[static_cast<size_t>(part.device)].name()},
                    {"job", set.jobs[static_cast<size_t>(part.job)].job.name},
                    {"begin", part.begin},
                    {"end", part.end}});
  Json object = {{"dry_run", true},
                 {"recipe", recipe.name},
                 {"values", recipe.resolver->to_json()},
                 {"strategy", set.strategy},
                 {"assignment", name_of(set.schedule.assignment)},
                 {"jobs", jobs},
                 {"devices", devices},
                 {"plan", plan},
                 {"forecast_seconds", course.forecast.seconds},
                 {"ideal_seconds", course.ideal_seconds},
                 {"bits", set.bits()}};
  add_choice(set, object);
  return object;
}

void say_course(const Command& command, const PreparedSet& set, const SetCourse& course) {
  for (size_t j = 0; j < course.jobs.size(); ++j)
    command.output.say(fmt::format("  {:<26} {:>7} steps  {} shards  about {} alone", set.jobs[j].job.name,
                                   set.jobs[j].job.steps, set.jobs[j].job.shards,
                                   duration_words(alone(set, course, j))));
  for (size_t d = 0; d < course.speeds.size(); ++d) {
    std::vector<std::string> parts;
    for (const Segment& part : course.forecast.course)
      if (part.device == static_cast<int>(d))
        parts.push_back(
            fmt::format("{} {:.0f}-{:.0f} s", set.jobs[static_cast<size_t>(part.job)].job.name, part.begin, part.end));
    command.output.say(
        fmt::format("  {:<8} speed {:.2f}: {}", set.devices[d].name(), course.speeds[d], fmt::join(parts, ", ")));
  }
  if (set.chosen)
    command.output.say(fmt::format("forecast {}", duration_words(course.forecast.seconds)));
  else
    command.output.say(fmt::format("forecast {} (nothing can be below {})", duration_words(course.forecast.seconds),
                                   duration_words(course.ideal_seconds)));
  for (const std::string& line : set.choice_lines()) command.output.say(line);
  for (const std::string& line : set.bits()) command.output.say(fmt::format("bits    {}", line));
}

}  // namespace

void show_set(const Command& command, const ResolvedRecipe& recipe, const PreparedSet& set, const Estimate& estimate) {
  SetCourse course{planned(set, estimate), estimate.speeds(), {}, 0};
  course.forecast = forecast_of(set, course);
  course.ideal_seconds = ideal_seconds(course.jobs, course.speeds) + set.seconds_beside;
  if (command.output.json()) {
    command.output.object(course_json(recipe, set, course));
    return;
  }
  command.output.data(recipe.resolver->to_toml(recipe.name));
  command.output.say(fmt::format("{}: {} on {} device{}, strategy {}, assignment {}", recipe.name, set.words(),
                                 course.speeds.size(), course.speeds.size() == 1 ? "" : "s", set.strategy,
                                 name_of(set.schedule.assignment)));
  say_course(command, set, course);
  command.output.say("dry run: nothing was started");
}

}  // namespace tandem
