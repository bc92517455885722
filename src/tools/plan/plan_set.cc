// tools/plan/plan_set.cc -- `tandem plan` of a set of jobs: its models on 1, 2, ... devices, by the schedule that will
// run them (jobs/schedule.h) and a measurement of each model.
//
// Which models share a run depends on the devices (JobSet::prepare). So for GPUs each number of them has its own set,
// prepared as `train` would prepare it there: by the same choice (jobs/set_plan.h), with what was measured here.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/errors.h"
#include "command/trial_run.h"
#include "forecast/hardware_model.h"
#include "forecast/pauses.h"
#include "forecast/set_costs.h"
#include "jobs/job_set.h"
#include "tools/plan/plan.h"
#include "tools/plan/set_model.h"

namespace tandem {
namespace {

// By the choice of the set, whose devices are all of the report's.
void add_choice(SetRow& row, const ChosenPlan& chosen, const PlanReport& report) {
  SetQuestion question = chosen.question;
  for (size_t d = 0; d < question.devices.size(); ++d) question.devices[d].name = report.devices[d].name;
  const SetPlan& best = chosen.choice.best;
  double busy = 0;
  for (const PlannedRun& run : best.runs) busy += (run.end - run.begin) * static_cast<double>(run.devices.size());
  row.seconds = best.seconds;
  row.ideal_seconds = busy / static_cast<double>(best.devices().size()) + question.seconds_beside;
  row.choice = words_of(question, best);
  row.exact = chosen.choice.exact;
  row.gap = chosen.choice.gap();
  if (!chosen.choice.runner_up) return;
  row.next_choice = words_of(question, *chosen.choice.runner_up);
  row.next_seconds = chosen.choice.runner_up->seconds;
}

SetRow row_of(const SetModel& model, const PreparedSet& set, const PlanReport& report, std::vector<size_t> used,
              const std::vector<const GpuModel*>& gpus) {
  std::sort(used.begin(), used.end());
  SetRow row;
  std::vector<double> watts;
  std::vector<PlanDevice> here;
  for (const size_t d : used) {
    here.push_back(report.devices[d]);
    row.names.push_back(report.devices[d].name);
  }
  for (const size_t i : different_gpus(here)) watts.push_back(here[i].watts);
  row.jobs = static_cast<int>(set.jobs.size());
  row.agents = agents_of(set);
  row.words = set.words();
  if (set.chosen) {
    add_choice(row, *set.chosen, report);
  } else {
    const SetModel::Course course = model.course_of(set, used);
    row.seconds = course.seconds;
    row.ideal_seconds = course.ideal_seconds;
  }
  const CheckpointRule rule =
      checkpoint_rule(*set.jobs.front().settings);  // asked for: snapshots come, however short it is
  row.memory_bytes = model.memory_bytes(rule.seconds > 0 || rule.steps > 0 ? 1e9 : row.seconds);
  const double busy = static_cast<double>(used.size()) / std::max(1, report.calibration.cores);
  const double measured = report.here ? watts_of_one(report.calibration) * static_cast<double>(watts.size()) : 0;
  row.watts = power_of(watts, measured, busy).typical_w;
  row.kwh = energy_kwh(row.watts, row.seconds);
  row.cost = row.kwh * report.prices.kwh;
  if (const auto offer = rent_of(report.prices, gpus_used(report.devices, gpus, used))) {
    row.cloud = offer->name;
    row.cloud_cost = offer->per_hour * row.seconds / 3600;
  }
  if (const auto guide = guide_figures(report.recipe, static_cast<int>(used.size()))) row.guide = guide->speedup;
  row.error = std::max({model.error(), outcome_error(report.outcomes), load_error(report.calibration)});
  return row;
}

// What `train` would make of the set with at most so many of these GPUs, on a machine that has no others.
PreparedSet prepare_on_gpus(const Command& command, const JobSet& kind, ResolvedRecipe& recipe,
                            const std::vector<PlanDevice>& devices, size_t most, const SetKnown& known) {
  Machine there = command.context.machine;
  there.cuda_build = true;
  there.cuda_devices = static_cast<int>(devices.size());
  there.gpus.clear();
  for (const PlanDevice& device : devices) there.gpus.push_back({"", device.device.model});
  return kind.prepare_at(recipe, there,
                         {.devices = "auto", .count = devices.size(), .most_devices = most, .known = known});
}

// Measures, here, and makes models of what it is asked for.
class AgentBook {
 public:
  AgentBook(const Command& command, PlanReport& report, const PreparedSet& base,
            const std::vector<const GpuModel*>& elsewhere)
      : command_(command), report_(report), base_(base), elsewhere_(elsewhere) {
    const std::vector<const PreparedJob*> all = different_agents(base);
    first_ = models_of(all.front()->job);
    share_ = kOfBudget * command.arguments.plan.budget_s / (static_cast<double>(all.size()) + 2);
    for (const PreparedJob* one : all) add(*one);
  }

  double scaled_error() const { return scaled_error_; }
  // For the choice of a plan: by the trials of these GPUs, or of those here, moved to GPUs elsewhere.
  std::map<std::string, std::map<std::string, RunCost>> costs(const PreparedJob* batch) {
    if (!elsewhere_.empty()) return moved_;
    std::optional<TriedJob> together;
    if (batch) together.emplace(batch, trials_of(*batch, false));
    std::vector<TriedJob> agents;
    for (const PreparedJob* one : different_agents(base_))
      agents.emplace_back(one, alone_.at(models_of(one->job)).calibration);
    return costs_by_trials(agents, together, base_.devices);
  }
  // Of the jobs of a set: of the base's, or of them side by side.
  SetModel model_of(const PreparedSet& set, const std::vector<ForecastDevice>& devices) {
    AgentModels some;
    for (const PreparedJob* one : different_agents(set)) {
      const std::string kind = models_of(one->job);
      if (!models_.contains(kind)) add(*one);
      some.emplace(kind, models_.at(kind));
    }
    const std::string first = some.contains(first_) ? first_ : models_of(set.jobs.front().job);
    return {std::move(some), first, devices};
  }

 private:
  struct Alone {
    Calibration calibration;  // as it would be there
    JobShape shape;
    double flops;
  };

  // On GPUs those in one run are reckoned from each by itself.
  void add(const PreparedJob& one) {
    if (!one.job.members.empty() && on_gpus())
      keep(one, beside(one), sum_of(shapes_of(one)));
    else
      measured(one);
  }
  bool on_gpus() const { return !elsewhere_.empty() || all_gpus(base_.devices); }

  Calibration trials_of(const PreparedJob& one, bool pair) {
    const RecipeSettings& settings = *one.settings;
    return measure(command_,
                   {.recipe = base_.job_recipe,
                    .title = one.job.members.empty() ? models_of(one.job)
                                                     : fmt::format("{} agents side by side", agents_of(one.job)),
                    .resolver = one.resolver.get(),
                    .devices = base_.devices,
                    .batches = {settings.batch_size},
                    .precisions = {settings.precision},
                    .most = pair ? 2 : 1,
                    .budget_s = pair ? 2.5 * share_ : share_,
                    .anew = command_.arguments.plan.calibrate});
  }

  void measured(const PreparedJob& one) {
    const std::string kind = models_of(one.job);
    const RecipeSettings& settings = *one.settings;
    const bool pair = kind == first_;
    Calibration known = trials_of(one, pair);
    if (pair) report_.calibration = known;
    const JobShape shape = shape_of_job(command_, base_.job_recipe, *one.resolver);
    if (!elsewhere_.empty()) {
      Scaled scaled =
          scale_to(elsewhere_, known, shape, {settings.batch_size, 2 * settings.batch_size}, settings.precision);
      scaled_error_ = scaled.error;
      report_.scaled_from = scaled.from;
      if (const std::string note = "assumed between the GPUs: " + scaled.between;
          !scaled.between.empty() && std::ranges::find(report_.notes, note) == report_.notes.end())
        report_.notes.push_back(note);
      known = std::move(scaled.calibration);
      if (all_gpus(base_.devices))  // else the data sheets say as much without it
        for (const auto& [gpu, shares] : scaled.by_gpu) moved_[gpu][kind] = cost_of(shares);
    }
    if (on_gpus()) alone_[kind] = {known, shape, one.job.flops};
    keep(one, known, shape);
  }

  std::vector<JobShape> shapes_of(const PreparedJob& one) const {
    std::vector<JobShape> shapes;
    for (const SetJob::Member& member : one.job.members) shapes.push_back(alone_.at(member.agent).shape);
    return shapes;
  }

  // From the slowest of its agents, by what the schedule says that they take together.
  Calibration beside(const PreparedJob& one) const {
    const auto seconds = [](const Alone& agent) { return agent.calibration.trials.front().step_seconds; };
    const Alone* slowest = nullptr;
    double flops = 0;
    for (const SetJob::Member& member : one.job.members) {
      const Alone& agent = alone_.at(member.agent);
      flops += agent.flops / static_cast<double>(one.job.members.size());
      if (!slowest || seconds(agent) > seconds(*slowest)) slowest = &agent;
    }
    return side_by_side(slowest->calibration, sum_of(shapes_of(one)), agents_of(one.job), one.job.flops / flops);
  }

  void keep(const PreparedJob& one, const Calibration& known, const JobShape& shape) {
    const RecipeSettings& settings = *one.settings;
    const bool gpu = !elsewhere_.empty() || base_.devices[0].kind == DeviceSpec::Kind::kCuda;
    models_.emplace(models_of(one.job),
                    AgentModel{StepModel(known, settings.precision), MemoryModel(known, settings.precision, gpu), shape,
                               settings.batch_size});
  }

  const Command& command_;
  PlanReport& report_;
  const PreparedSet& base_;
  const std::vector<const GpuModel*>& elsewhere_;
  AgentModels models_;
  std::map<std::string, Alone> alone_;
  std::map<std::string, std::map<std::string, RunCost>> moved_;  // by GPU elsewhere, by agent
  std::string first_;
  double share_ = 0, scaled_error_ = 0;
};

}  // namespace

namespace {

std::vector<int> counts_of(const Arguments& arguments, int there) {
  if (!arguments.plan.gpus.empty()) return parse_counts(arguments.plan.gpus, there);
  std::vector<int> counts(static_cast<size_t>(there));
  std::iota(counts.begin(), counts.end(), 1);
  return counts;
}

}  // namespace

void plan_set(const Command& command, const JobSet& kind, ResolvedRecipe& recipe, PlanReport& report,
              const std::vector<const GpuModel*>& elsewhere) {
  const Arguments& arguments = command.arguments;
  if (!arguments.plan.batch.empty() || !arguments.plan.precision.empty())
    throw ConfigError(fmt::format("plan {} takes no --batch and no --precision", recipe.name), "each agent has its own",
                      fmt::format("plan one agent: `{} plan {} --batch 128,256`; or --set batch_size=512 for all",
                                  command.context.program, kind.job_recipe()));
  // On GPUs each agent is measured by itself: who shares a run is decided by that.
  const Machine& machine = command.context.machine;
  const std::vector<DeviceSpec> specs = parse_devices(recipe.settings->devices, machine, 1024);
  const bool by_cores = report.here && !all_gpus(specs);
  PreparedSet base = by_cores ? kind.prepare(recipe, machine, "", {}, [](const std::string&) {})
                              : kind.prepare_at(recipe, machine,
                                                {.devices = recipe.settings->devices, .count = 0, .job_by_job = true});
  base.devices = specs;
  const size_t there = report.here ? specs.size() : elsewhere.size();
  const std::vector<int> counts = counts_of(arguments, static_cast<int>(there));
  report.strategy = base.strategy;
  if (report.here) report.devices = devices_here(specs);
  SetKnown known;
  if (report.here) known.memory = memory_of(specs);
  const auto prepared = [&](size_t most) {
    if (!report.here) return prepare_on_gpus(command, kind, recipe, report.devices, most, known);
    return kind.prepare_at(recipe, machine,
                           {.devices = devices_named(specs), .count = there, .most_devices = most, .known = known});
  };
  if (!by_cores) prepared(there);  // refused before anything is measured, if it is

  AgentBook book(command, report, base, elsewhere);
  if (!by_cores) {
    const PreparedSet batched = report.here ? on_first_gpu(command, kind, recipe, specs.front()) : PreparedSet();
    known.steps = book.costs(report.here ? largest_batch(batched) : nullptr);
  }
  report.set_words = by_cores ? base.words() : prepared(there).words();
  const std::vector<const GpuModel*> gpus = report.here ? gpus_of(report.devices) : elsewhere;
  std::vector<ForecastDevice> devices;
  for (const PlanDevice& device : report.devices) devices.push_back(device.device);
  const SetModel whole = book.model_of(base, devices);
  for (const PreparedJob& one : base.jobs)
    report.agents.push_back({one.job.name, whole.seconds_alone(one.job), one.job.steps});

  std::vector<size_t> order(there);  // the fastest first
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return whole.speed(a) > whole.speed(b); });
  const auto row_with = [&](int count) {
    const auto most = static_cast<size_t>(count);
    SetRow row;
    if (by_cores) {
      row = row_of(whole, base, report, {order.begin(), order.begin() + count}, gpus);
    } else {
      const PreparedSet set = prepared(most);
      std::vector<size_t> used(order.begin(), order.begin() + count);
      if (set.chosen) {
        used.clear();
        for (const int d : set.chosen->choice.best.devices()) used.push_back(static_cast<size_t>(d));
      }
      row = row_of(book.model_of(set, devices), set, report, used, gpus);
    }
    row.offered = count;
    return row;
  };
  const double alone = row_with(1).seconds;
  for (const int count : counts) {
    SetRow row = row_with(count);
    row.speedup = alone / row.seconds;
    if (!report.here)  // past runs and the load here say nothing of data sheets
      row.error = std::max(book.scaled_error(), all_gpus(specs) ? load_error(report.calibration) : 0);
    report.set_rows.push_back(std::move(row));
  }
  add_power(report, gpus, report.here ? watts_of_one(report.calibration) : 0);
  if (report.here) report.command = command_to_copy(command, "", 0, "");
}

const SetRow* PlanReport::best_set() const {
  const SetRow* best = nullptr;
  for (const SetRow& row : set_rows)
    if (!best || row.seconds < .98 * best->seconds) best = &row;
  return best;
}

}  // namespace tandem
