// cli/plan_set.cc -- `tandem plan web-test`: six agents on 1, 2, ... devices, by the schedule that will run them
// (jobs/schedule.h) and a measurement of each agent.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "cli/plan.h"
#include "cli/trial_run.h"
#include "cli/web_test.h"
#include "forecast/hardware_model.h"

namespace tandem {
namespace {

constexpr const char* kAgentRecipe = "web-agent";

struct AgentModel {
  StepModel steps;
  MemoryModel memory;
  JobShape shape;
  int64_t batch;
};

// Members of an ensemble learn alike: each agent is measured once.
const Resolver& settings_of(const PreparedSet& set, const std::string& agent) {
  for (const PreparedJob& one : set.jobs)
    if (one.job.agent == agent) return *one.resolver;
  throw std::logic_error("an agent without a job");
}

}  // namespace

void plan_set(const Command& command, ResolvedRecipe& recipe, PlanReport& report,
              const std::vector<const BookCard*>& elsewhere) {
  const Arguments& arguments = command.arguments;
  if (!arguments.plan.batch.empty() || !arguments.plan.precision.empty())
    throw ConfigError("plan web-test takes no --batch and no --precision", "each agent has its own",
                      "plan one agent: `tandem plan web-agent --batch 128,256`; or --set batch_size=512 for all");
  PreparedSet set = prepare_web_test(command, recipe, "");
  report.strategy = set.settings->strategy;
  std::vector<std::string> agents;
  for (const PreparedJob& one : set.jobs)
    if (std::ranges::find(agents, one.job.agent) == agents.end()) agents.push_back(one.job.agent);

  std::map<std::string, AgentModel> models;
  double scaled_error = 0;
  for (const std::string& agent : agents) {
    const Resolver& resolver = settings_of(set, agent);
    const auto& settings =
        *std::ranges::find_if(set.jobs, [&](const auto& one) { return one.job.agent == agent; })->settings;
    const bool pair = agent == agents.front();
    const double share = kOfBudget * arguments.plan.budget_s / (static_cast<double>(agents.size()) + 2);
    Calibration known = measure(command, {.recipe = kAgentRecipe,
                                          .title = agent.empty() ? "six agents side by side" : agent,
                                          .resolver = &resolver,
                                          .devices = set.devices,
                                          .batches = {settings.batch_size},
                                          .precisions = {settings.precision},
                                          .pair = pair,
                                          .budget_s = pair ? 2.5 * share : share,
                                          .anew = arguments.plan.calibrate});
    if (pair) report.calibration = known;
    const JobShape shape = shape_of_job(command, kAgentRecipe, resolver);
    if (!elsewhere.empty()) {
      Scaled scaled =
          scale_to(elsewhere, known, shape, {settings.batch_size, 2 * settings.batch_size}, settings.precision);
      scaled_error = scaled.error;
      report.scaled_from = scaled.from;
      known = std::move(scaled.calibration);
    }
    const bool card = !elsewhere.empty() || set.devices[0].kind == DeviceSpec::Kind::kCuda;
    models.emplace(agent, AgentModel{StepModel(known, settings.precision), MemoryModel(known, settings.precision, card),
                                     shape, settings.batch_size});
  }
  if (report.here) report.devices = devices_here(set.devices);
  const std::vector<const BookCard*> cards = report.here ? cards_of(report.devices) : elsewhere;
  const AgentModel& paired = models.at(agents.front());
  std::vector<ForecastDevice> all;
  for (const PlanDevice& device : report.devices) all.push_back(device.device);
  const auto alone = [&](const std::string& agent, size_t device) {
    return models.at(agent).steps.step(models.at(agent).batch, {all[device]}).seconds;
  };
  // Speeds as the schedule has them: 1 is the fastest.
  std::vector<double> speeds(all.size());
  size_t fastest = 0;
  for (size_t d = 1; d < all.size(); ++d)
    if (alone(agents.front(), d) < alone(agents.front(), fastest)) fastest = d;
  for (size_t d = 0; d < all.size(); ++d)
    for (const std::string& agent : agents)
      speeds[d] += alone(agent, fastest) / alone(agent, d) / static_cast<double>(agents.size());
  for (const PreparedJob& one : set.jobs)
    report.agents.push_back(
        {one.job.name, static_cast<double>(one.job.steps) * alone(one.job.agent, fastest), one.job.steps});

  std::vector<int> counts;
  if (arguments.plan.gpus.empty())
    for (int n = 1; n <= static_cast<int>(all.size()); ++n) counts.push_back(n);
  else
    counts = parse_counts(arguments.plan.gpus, static_cast<int>(all.size()));
  if (counts.front() != 1) counts.insert(counts.begin(), 1);
  std::vector<size_t> order(all.size());
  for (size_t d = 0; d < order.size(); ++d) order[d] = d;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return speeds[a] > speeds[b]; });
  double first = 0;
  for (const int count : counts) {
    SetRow row;
    std::vector<size_t> used(order.begin(), order.begin() + count);
    std::sort(used.begin(), used.end());
    std::vector<double> some;
    std::vector<ForecastDevice> there;
    std::vector<double> watts;
    std::vector<const BookCard*> rented;
    for (const size_t d : used) {
      some.push_back(speeds[d]);
      there.push_back(all[d]);
      row.names.push_back(report.devices[d].name);
      if (report.devices[d].watts > 0) watts.push_back(report.devices[d].watts);
      if (d < cards.size()) rented.push_back(cards[d]);
    }
    ScheduleOptions options = set.schedule;
    options.start_seconds = paired.steps.start_seconds(1);
    const StepForecast two = paired.steps.step(paired.batch, {all[fastest], all[fastest]});
    options.combine_share = std::clamp(two.combine / two.seconds, 0.0, .9);
    const double crowd = paired.steps.crowd(there);
    std::vector<PlannedJob> jobs;
    for (size_t j = 0; j < set.jobs.size(); ++j)
      jobs.push_back({.work = report.agents[j].seconds_alone * crowd,
                      .shards = set.jobs[j].job.shards,
                      .pin = set.jobs[j].job.pin < count ? set.jobs[j].job.pin : -1,
                      .devices = {}});
    row.course = forecast(jobs, some, options);
    row.seconds = row.course.seconds + paired.steps.end_seconds(0);
    row.ideal_seconds = ideal_seconds(jobs, some);
    for (const auto& [agent, model] : models)
      row.memory_bytes = std::max(
          row.memory_bytes,
          model.memory.worker(model.shape, model.batch, static_cast<int>(model.steps.shards_of(1)), 1, row.seconds)
              .total());
    const double busy = static_cast<double>(count) / std::max(1, report.calibration.cores);
    row.watts = power_of(watts, 0, busy).typical_w;
    row.kwh = energy_kwh(row.watts, row.seconds);
    row.cost = row.kwh * report.prices.kwh;
    if (rented.size() == used.size())
      if (const auto offer = rent_of(report.prices, rented)) {
        row.cloud = offer->name;
        row.cloud_cost = offer->per_hour * row.seconds / 3600;
      }
    if (count == 1) first = row.seconds;
    row.speedup = first > 0 ? first / row.seconds : 1;
    row.guide = guide_speedup(count);
    row.error = std::max({scaled_error, two.error + .03, outcome_error(report.outcomes)});
    if (arguments.plan.gpus.empty() ||
        std::ranges::binary_search(parse_counts(arguments.plan.gpus, static_cast<int>(all.size())), count))
      report.set_rows.push_back(std::move(row));
  }
  add_power(report, cards, 0);
  if (report.here) report.command = fmt::format("{} train web-test", command.context.program);
}

}  // namespace tandem
