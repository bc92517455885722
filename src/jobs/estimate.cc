#include "jobs/estimate.h"

#include <algorithm>

#include "jobs/schedule.h"

namespace tandem {
namespace {

// First guesses, of a core and of a card; only the first forecast is made with them.
constexpr double kCoreFlops = 5e10, kCardFlops = 2e12;

bool is_cpu(const std::string& model) { return model == "cpu"; }

double mean(const std::map<int, double>& values) {
  double sum = 0;
  for (const auto& [key, value] : values) sum += value;
  return sum / static_cast<double>(values.size());
}

}  // namespace

Estimate::Estimate(const std::vector<DeviceSpec>& devices, const std::vector<SetJob>& jobs, double combine_share)
    : devices_(devices), combine_share_(combine_share) {
  for (const SetJob& job : jobs) flops_.push_back(job.flops), shards_.push_back(job.shards);
}

std::string Estimate::model_of(const DeviceSpec& device) {
  if (device.kind == DeviceSpec::Kind::kCpu) return "cpu";
  return device.card.name.empty() ? "cuda" : device.card.name;
}

void Estimate::measured(int job, const std::vector<int>& devices, double steps_per_second) {
  if (devices.empty() || !(steps_per_second > 0)) return;
  if (devices.size() == 1) {
    const DeviceSpec& device = devices_[static_cast<size_t>(devices[0])];
    models_[model_of(device)][job] = steps_per_second * flops_[static_cast<size_t>(job)] / device.speed;
  }
  jobs_[job] = {devices, steps_per_second};
}

void Estimate::assume(const std::string& model, double flops_per_second) {
  if (flops_per_second > 0) assumed_[model] = flops_per_second;
}

double Estimate::throughput(const std::string& model) const {
  if (const auto own = models_.find(model); own != models_.end()) return mean(own->second);
  if (const auto earlier = assumed_.find(model); earlier != assumed_.end()) return earlier->second;
  double sum = 0;
  int count = 0;
  for (const auto& [other, values] : models_)  // another card is a better guess than a number from nowhere
    if (is_cpu(other) == is_cpu(model)) sum += mean(values), ++count;
  return count > 0 ? sum / count : is_cpu(model) ? kCoreFlops : kCardFlops;
}

double Estimate::fastest() const {
  double most = 0;
  for (const DeviceSpec& device : devices_) most = std::max(most, throughput(model_of(device)));
  return most;
}

std::vector<double> Estimate::speeds() const {
  std::vector<double> speeds;
  for (const DeviceSpec& device : devices_) speeds.push_back(device.speed * throughput(model_of(device)) / fastest());
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

std::map<std::string, double> Estimate::models() const {
  std::map<std::string, double> all;
  for (const auto& [model, values] : models_) all[model] = mean(values);
  return all;
}

}  // namespace tandem
