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
std::vector<const PreparedJob*> different_agents(const PreparedSet& set) {
  std::vector<const PreparedJob*> agents;
  for (const PreparedJob& one : set.jobs)
    if (std::ranges::none_of(agents, [&](const PreparedJob* seen) { return seen->job.agent == one.job.agent; }))
      agents.push_back(&one);
  return agents;
}

// The agents of a set on some devices, as far as the schedule must know them.
class SetModel {
 public:
  // `models`: by name of the agent; `first` is the one that was measured on two devices.
  SetModel(std::map<std::string, AgentModel> models, std::string first, std::vector<ForecastDevice> devices)
      : models_(std::move(models)), first_(std::move(first)), devices_(std::move(devices)), speeds_(devices_.size()) {
    for (size_t d = 1; d < devices_.size(); ++d)
      if (alone(first_, d) < alone(first_, fastest_)) fastest_ = d;
    for (size_t d = 0; d < devices_.size(); ++d)
      for (const auto& [agent, model] : models_)
        speeds_[d] += alone(agent, fastest_) / alone(agent, d) / static_cast<double>(models_.size());
  }

  const StepModel& steps() const { return models_.at(first_).steps; }
  double speed(size_t device) const { return speeds_[device]; }  // 1 is the fastest
  double seconds_alone(const SetJob& job) const { return static_cast<double>(job.steps) * alone(job.agent, fastest_); }
  double error() const { return pair().error + .03; }
  double memory_bytes(double seconds) const {  // of the worker that needs most
    double most = 0;
    for (const auto& [agent, model] : models_) {
      const int all = static_cast<int>(model.steps.shards_of(1));
      most = std::max(most, model.memory.worker(model.shape, model.batch, all, 1, seconds).total());
    }
    return most;
  }

  // The set to its end on some of the devices.
  struct Played {
    double seconds, ideal_seconds;
  };
  Played play(const PreparedSet& set, const std::vector<size_t>& used) const {
    std::vector<double> speeds;
    std::vector<ForecastDevice> there;
    for (const size_t d : used) speeds.push_back(speeds_[d]), there.push_back(devices_[d]);
    ScheduleOptions options = set.schedule;
    options.start_seconds = steps().start_seconds(1);
    options.combine_share = std::clamp(pair().combine / pair().seconds, 0.0, .9);
    const double crowd = steps().crowd(there);
    std::vector<PlannedJob> jobs;
    for (const PreparedJob& one : set.jobs)
      jobs.push_back({.work = seconds_alone(one.job) * crowd,
                      .shards = one.job.shards,
                      .pin = one.job.pin < static_cast<int>(used.size()) ? one.job.pin : -1,
                      .devices = {}});
    return {forecast(jobs, speeds, options).seconds + steps().end_seconds(1, 0), ideal_seconds(jobs, speeds)};
  }

 private:
  double alone(const std::string& agent, size_t device) const {
    const AgentModel& model = models_.at(agent);
    return model.steps.step(model.batch, {devices_[device]}).seconds;
  }
  StepForecast pair() const { return steps().step(models_.at(first_).batch, {devices_[fastest_], devices_[fastest_]}); }

  std::map<std::string, AgentModel> models_;
  std::string first_;
  std::vector<ForecastDevice> devices_;
  std::vector<double> speeds_;
  size_t fastest_ = 0;
};

SetRow row_of(const SetModel& model, const PreparedSet& set, const PlanReport& report, std::vector<size_t> used,
              const std::vector<const BookCard*>& cards) {
  std::sort(used.begin(), used.end());
  SetRow row;
  std::vector<double> watts;
  std::vector<PlanDevice> here;
  for (const size_t d : used) {
    here.push_back(report.devices[d]);
    row.names.push_back(report.devices[d].name);
  }
  for (const size_t i : different_cards(here)) watts.push_back(here[i].watts);
  const SetModel::Played played = model.play(set, used);
  row.seconds = played.seconds;
  row.ideal_seconds = played.ideal_seconds;
  const CheckpointRule rule =
      checkpoint_rule(*set.jobs.front().settings);  // asked for: snapshots come, however short it is
  row.memory_bytes = model.memory_bytes(rule.seconds > 0 || rule.steps > 0 ? 1e9 : row.seconds);
  const double busy = static_cast<double>(used.size()) / std::max(1, report.calibration.cores);
  const double measured = report.here ? watts_of_one(report.calibration) * static_cast<double>(watts.size()) : 0;
  row.watts = power_of(watts, measured, busy).typical_w;
  row.kwh = energy_kwh(row.watts, row.seconds);
  row.cost = row.kwh * report.prices.kwh;
  if (const auto offer = rent_of(report.prices, cards_used(report.devices, cards, used))) {
    row.cloud = offer->name;
    row.cloud_cost = offer->per_hour * row.seconds / 3600;
  }
  row.guide = guide_speedup(static_cast<int>(used.size()));
  row.error = std::max(model.error(), outcome_error(report.outcomes));
  return row;
}

}  // namespace

void plan_set(const Command& command, ResolvedRecipe& recipe, PlanReport& report,
              const std::vector<const BookCard*>& elsewhere) {
  const Arguments& arguments = command.arguments;
  if (!arguments.plan.batch.empty() || !arguments.plan.precision.empty())
    throw ConfigError("plan web-test takes no --batch and no --precision", "each agent has its own",
                      "plan one agent: `tandem plan web-agent --batch 128,256`; or --set batch_size=512 for all");
  PreparedSet set = prepare_web_test(command, recipe, "");
  const size_t there = report.here ? set.devices.size() : elsewhere.size();
  std::vector<int> counts;
  if (arguments.plan.gpus.empty())
    for (int n = 1; n <= static_cast<int>(there); ++n) counts.push_back(n);
  else
    counts = parse_counts(arguments.plan.gpus, static_cast<int>(there));
  report.strategy = set.settings->strategy;

  const std::vector<const PreparedJob*> agents = different_agents(set);
  const double share = kOfBudget * arguments.plan.budget_s / (static_cast<double>(agents.size()) + 2);
  std::map<std::string, AgentModel> models;
  double scaled_error = 0;
  for (const PreparedJob* one : agents) {
    const std::string& agent = one->job.agent;
    const WebAgentSettings& settings = *one->settings;
    const bool pair = one == agents.front();
    Calibration known = measure(command, {.recipe = kAgentRecipe,
                                          .title = agent.empty() ? "six agents side by side" : agent,
                                          .resolver = one->resolver.get(),
                                          .devices = set.devices,
                                          .batches = {settings.batch_size},
                                          .precisions = {settings.precision},
                                          .most = pair ? 2 : 1,
                                          .budget_s = pair ? 2.5 * share : share,
                                          .anew = arguments.plan.calibrate});
    if (pair) report.calibration = known;
    const JobShape shape = shape_of_job(command, kAgentRecipe, *one->resolver);
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
  std::vector<ForecastDevice> devices;
  for (const PlanDevice& device : report.devices) devices.push_back(device.device);
  const SetModel model(std::move(models), agents.front()->job.agent, std::move(devices));
  for (const PreparedJob& one : set.jobs)
    report.agents.push_back({one.job.name, model.seconds_alone(one.job), one.job.steps});

  std::vector<size_t> order(there);  // the fastest first
  for (size_t d = 0; d < order.size(); ++d) order[d] = d;
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return model.speed(a) > model.speed(b); });
  const double alone = model.play(set, {order[0]}).seconds;
  for (const int count : counts) {
    SetRow row = row_of(model, set, report, {order.begin(), order.begin() + count}, cards);
    row.speedup = alone / row.seconds;
    row.error = std::max(row.error, scaled_error);
    report.set_rows.push_back(std::move(row));
  }
  add_power(report, cards, report.here ? watts_of_one(report.calibration) : 0);
  if (report.here) report.command = command_to_copy(command, "", 0, "");
}

std::optional<double> forecast_of_set(const Command& command, const PreparedSet& set) {
  try {
    std::map<std::string, AgentModel> models;
    const std::vector<const PreparedJob*> agents = different_agents(set);
    for (const PreparedJob* one : agents) {
      const WebAgentSettings& settings = *one->settings;
      const auto kept = load_calibration(forecast_cache(), key_of(command.context, kAgentRecipe, *one->resolver));
      if (!kept) return std::nullopt;
      const Calibration known = trials_for(*kept, trial_devices(set.devices));
      models.emplace(one->job.agent,
                     AgentModel{StepModel(known, settings.precision),
                                MemoryModel(known, settings.precision, set.devices[0].kind == DeviceSpec::Kind::kCuda),
                                JobShape{}, settings.batch_size});
    }
    std::vector<ForecastDevice> devices;
    std::vector<size_t> all;
    for (const DeviceSpec& spec : set.devices) {
      devices.push_back(forecast_device(spec));
      all.push_back(all.size());
      for (const auto& [agent, model] : models)
        if (!model.steps.knows(devices.back().model)) return std::nullopt;
    }
    return SetModel(std::move(models), agents.front()->job.agent, std::move(devices)).play(set, all).seconds;
  } catch (const Error&) {  // a forecast is never worth a run
    return std::nullopt;
  }
}

}  // namespace tandem
