#include "jobs/estimate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "jobs/schedule.h"

namespace tandem {
namespace {

// First guesses, of a core and of a GPU; only the first forecast is made with them.
constexpr double kCoreFlops = 5e10, kGpuFlops = 2e12;
// Standard deviations of logarithms: of a reading, of a device's speed from its name, of a job's cost from its
// arithmetic.
constexpr double kReading = 0.02, kDevice = 0.08, kJob = 0.06;
constexpr int kRounds = 40;          // of the fit; each sets every number to its best, the others given
constexpr double kMostShare = 0.9;   // lost on agreeing: more is a hiccup of the machine
constexpr double kNewReading = 0.5;  // weight of the newest in what is lost on agreeing

bool is_cpu(const std::string& model) { return model == "cpu"; }

}  // namespace

Estimate::Estimate(const std::vector<DeviceSpec>& devices, const std::vector<SetJob>& jobs, double combine_share)
    : devices_(devices), combine_share_(combine_share), off_(devices.size(), 0.0) {
  for (const SetJob& job : jobs) flops_.push_back(job.flops), shards_.push_back(job.shards);
}

std::string Estimate::model_of(const DeviceSpec& device) {
  if (device.kind == DeviceSpec::Kind::kCpu) return "cpu";
  return device.gpu.name.empty() ? "cuda" : device.gpu.name;
}

void Estimate::measured(int job, const std::vector<int>& devices, double steps_per_second) {
  if (devices.empty() || !(steps_per_second > 0)) return;
  const double flops = flops_[static_cast<size_t>(job)];
  jobs_[job] = {devices, steps_per_second};
  if (devices.size() == 1) {
    alone_[{job, devices[0]}] = steps_per_second * flops / devices_[static_cast<size_t>(devices[0])].speed;
    fit();
    steps_alone_[job] = steps_per_second / speeds()[static_cast<size_t>(devices[0])];
    return;
  }
  const auto alone = steps_alone_.find(job);
  if (alone == steps_alone_.end()) return;
  std::vector<double> used;
  const std::vector<double> all = speeds();
  for (const int device : devices) used.push_back(all[static_cast<size_t>(device)]);
  const double free = alone->second * work_rate(shards_[static_cast<size_t>(job)], used, 0);
  const double share = std::clamp(1 - steps_per_second / free, 0.0, kMostShare);
  combine_share_ += (std::exchange(share_measured_, true) ? kNewReading : 1) * (share - combine_share_);
}

void Estimate::assume(const std::string& model, double flops_per_second) {
  if (flops_per_second > 0) assumed_[model] = flops_per_second;
}

void Estimate::fit() {
  std::vector<double> job_off(flops_.size(), 0.0);
  std::fill(off_.begin(), off_.end(), 0.0);
  const auto model = [&](int device) { return model_of(devices_[static_cast<size_t>(device)]); };
  for (int round = 0; round < kRounds; ++round) {
    std::map<std::string, std::pair<double, int>> by_model;
    for (const auto& [who, flops] : alone_) {
      auto& [sum, count] = by_model[model(who.second)];
      sum += std::log(flops) + job_off[static_cast<size_t>(who.first)] - off_[static_cast<size_t>(who.second)];
      ++count;
    }
    for (const auto& [name, value] : by_model) models_[name] = std::exp(value.first / value.second);
    const auto settle = [&](std::vector<double>& values, double deviation, auto part, double sign) {
      std::vector<double> sums(values.size(), 0.0);
      std::vector<int> counts(values.size(), 0);
      for (const auto& [who, flops] : alone_) {
        const size_t at = static_cast<size_t>(part(who));
        const double rest = std::log(flops / models_.at(model(who.second))) + job_off[static_cast<size_t>(who.first)] -
                            off_[static_cast<size_t>(who.second)];
        sums[at] += sign * rest + values[at];
        ++counts[at];
      }
      const double prior = kReading * kReading / (deviation * deviation);
      for (size_t i = 0; i < values.size(); ++i) values[i] = sums[i] / (counts[i] + prior);
    };
    settle(
        off_, kDevice, [](const std::pair<int, int>& who) { return who.second; }, 1);
    settle(
        job_off, kJob, [](const std::pair<int, int>& who) { return who.first; }, -1);
  }
}

double Estimate::throughput(int device) const {
  const std::string model = model_of(devices_[static_cast<size_t>(device)]);
  if (const auto own = models_.find(model); own != models_.end())
    return own->second * std::exp(off_[static_cast<size_t>(device)]);
  if (const auto earlier = assumed_.find(model); earlier != assumed_.end()) return earlier->second;
  double sum = 0;
  int count = 0;
  for (const auto& [other, value] : models_)  // another GPU is a better guess than a number from nowhere
    if (is_cpu(other) == is_cpu(model)) sum += value, ++count;
  return count > 0 ? sum / count : is_cpu(model) ? kCoreFlops : kGpuFlops;
}

double Estimate::fastest() const {
  double most = 0;
  for (size_t d = 0; d < devices_.size(); ++d) most = std::max(most, throughput(static_cast<int>(d)));
  return most;
}

std::vector<double> Estimate::speeds() const {
  std::vector<double> speeds;
  for (size_t d = 0; d < devices_.size(); ++d)
    speeds.push_back(devices_[d].speed * throughput(static_cast<int>(d)) / fastest());
  return speeds;
}

double Estimate::step_seconds(int job) const {
  if (const auto own = jobs_.find(job); own != jobs_.end()) {
    std::vector<double> used;
    const std::vector<double> all = speeds();
    for (const int device : own->second.devices) used.push_back(all[static_cast<size_t>(device)]);
    return work_rate(shards_[static_cast<size_t>(job)], used, combine_share_) / own->second.steps_per_second;
  }
  return flops_[static_cast<size_t>(job)] / fastest();
}

std::map<std::string, double> Estimate::models() const { return models_; }

}  // namespace tandem
