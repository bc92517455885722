// tools/plan/set_model.h -- between plan_set.cc and set_model.cc: the agents of a set as models of their steps, and
// what their trials say for the choice of a plan (jobs/set_plan.h).
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "forecast/memory_model.h"
#include "forecast/pauses.h"
#include "forecast/step_model.h"
#include "jobs/job_set.h"
#include "tools/plan/plan.h"

namespace tandem {

struct AgentModel {
  StepModel steps;
  MemoryModel memory;
  JobShape shape;
  int64_t batch;
};

using AgentModels = std::map<std::string, AgentModel>;  // by models_of()

inline int agents_of(const SetJob& job) { return static_cast<int>(std::max<size_t>(1, job.members.size())); }

int agents_of(const PreparedSet& set);
// Members of an ensemble learn alike: each agent, and each group of them, is measured once.
std::vector<const PreparedJob*> different_agents(const PreparedSet& set);
bool all_gpus(const std::vector<DeviceSpec>& specs);

// The agents of a set on some devices, as far as the schedule must know them.
class SetModel {
 public:
  // `first` is the one that was measured on two devices.
  SetModel(AgentModels models, std::string first, std::vector<ForecastDevice> devices)
      : models_(std::move(models)), first_(std::move(first)), devices_(std::move(devices)), speeds_(devices_.size()) {
    for (size_t d = 1; d < devices_.size(); ++d)
      if (alone(first_, d) < alone(first_, fastest_)) fastest_ = d;
    for (size_t d = 0; d < devices_.size(); ++d)
      for (const auto& [agent, model] : models_)
        speeds_[d] += alone(agent, fastest_) / alone(agent, d) / static_cast<double>(models_.size());
  }

  const StepModel& steps() const { return models_.at(first_).steps; }
  double speed(size_t device) const { return speeds_[device]; }  // 1 is the fastest
  double seconds_alone(const SetJob& job) const {
    return static_cast<double>(job.steps) * alone(models_of(job), fastest_);
  }
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
  struct Course {
    double seconds, ideal_seconds;
  };
  Course course_of(const PreparedSet& set, const std::vector<size_t>& used) const {
    std::vector<double> speeds;
    std::vector<ForecastDevice> there;
    for (const size_t d : used) speeds.push_back(speeds_[d]), there.push_back(devices_[d]);
    ScheduleOptions options = set.schedule;
    options.start_seconds = steps().start_seconds(1);
    options.combine_share = std::clamp(pair().combine / pair().seconds, 0.0, .9);
    options.kinds.clear();
    for (const size_t d : used)
      if (d < set.schedule.kinds.size()) options.kinds.push_back(set.schedule.kinds[d]);
    const double crowd = steps().crowd(there);
    std::vector<PlannedJob> jobs;
    for (const PreparedJob& one : set.jobs)
      jobs.push_back({.work = seconds_alone(one.job) * crowd,
                      .shards = one.job.shards,
                      .pin = one.job.pin < static_cast<int>(used.size()) ? one.job.pin : -1,
                      .devices = {}});
    return {
        forecast(jobs, speeds, options).seconds + steps().end_seconds(1, 0) + saving(set, used) + set.seconds_beside,
        ideal_seconds(jobs, speeds)};
  }

 private:
  // A core goes on with the next agent while a run saves its buffers; a GPU is taken until it has.
  double saving(const PreparedSet& set, const std::vector<size_t>& used) const {
    if (std::ranges::any_of(used, [&](size_t d) { return devices_[d].model == "cpu"; })) return 0;
    double largest = 0;
    for (const auto& [kind, model] : models_)
      largest = std::max(largest, model.shape.replicated_bytes() +
                                      static_cast<double>(model.steps.shards_of(1)) * model.shape.shard_bytes);
    const size_t rounds = (set.jobs.size() + used.size() - 1) / used.size();
    return static_cast<double>(rounds) * largest / kSaveBytesPerSecond;
  }
  double alone(const std::string& agent, size_t device) const {
    const AgentModel& model = models_.at(agent);
    return model.steps.step(model.batch, {devices_[device]}).seconds;
  }
  StepForecast pair() const { return steps().step(models_.at(first_).batch, {devices_[fastest_], devices_[fastest_]}); }

  AgentModels models_;
  std::string first_;
  std::vector<ForecastDevice> devices_;
  std::vector<double> speeds_;
  size_t fastest_ = 0;
};

// The run of several agents that one GPU would have, which tells what agents add to each other's steps; none: they do
// not share runs. Owned by `alone`.
const PreparedJob* largest_batch(const PreparedSet& alone);
PreparedSet on_first_gpu(const Command& command, const JobSet& kind, ResolvedRecipe& recipe, const DeviceSpec& first);

using TriedJob = std::pair<const PreparedJob*, Calibration>;
// Of a step, by trials, as SetKnown::steps: of each agent by itself, and of some of them in one run. Nothing unless all
// models of GPUs were tried.
std::map<std::string, std::map<std::string, RunCost>> costs_by_trials(const std::vector<TriedJob>& agents,
                                                                      const std::optional<TriedJob>& batch,
                                                                      const std::vector<DeviceSpec>& gpus);
// What the driver says of the memory of these GPUs, for SetKnown. Without a driver: nothing.
std::map<std::string, SetKnown::Memory> memory_of(const std::vector<DeviceSpec>& gpus);

}  // namespace tandem
