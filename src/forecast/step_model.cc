#include "forecast/step_model.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/errors.h"
#include "fleet/planner.h"
#include "forecast/pauses.h"

namespace tandem {
namespace {

constexpr double kSecondsPerFloat = 1.2e-9;  // of a vector summed in host memory; only how K grows depends on it
constexpr double kUnmeasuredCombine = 6e-5;  // latency of a combine that nobody measured

bool is_cpu(const std::string& model) { return model == "cpu"; }

struct Line {
  double at_zero = 0, slope = 0;
  double operator()(double x) const { return at_zero + slope * x; }
};

// Least squares; neither part below 0. One point: through the origin.
Line fit(const std::vector<std::pair<double, double>>& points) {
  const auto n = static_cast<double>(points.size());
  double x = 0, y = 0, xx = 0, xy = 0;
  for (const auto& [a, b] : points) x += a, y += b, xx += a * a, xy += a * b;
  const double spread = n * xx - x * x;
  if (points.size() < 2 || spread <= 0) return {0, x > 0 ? y / x : 0};
  const double slope = (n * xy - x * y) / spread, at_zero = (y - slope * x) / n;
  if (slope < 0) return {y / n, 0};
  if (at_zero < 0) return {0, xx > 0 ? xy / xx : 0};
  return {at_zero, slope};
}

// Through the points where there are some on both sides, along the fitted line beyond them.
double through(const std::vector<std::pair<double, double>>& points, double x) {
  const auto above = std::find_if(points.begin(), points.end(), [&](const auto& p) { return p.first >= x; });
  if (above != points.end() && above->first == x) return above->second;
  if (above == points.begin() || above == points.end()) {
    const auto& nearest = above == points.end() ? points.back() : points.front();
    const Line line = fit(points);
    const double there = line(nearest.first);
    return there > 0 ? nearest.second * line(x) / there : nearest.second;
  }
  const auto below = above - 1;
  const double share = (x - below->first) / (above->first - below->first);
  return below->second + share * (above->second - below->second);
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// One start among several may have met a cold disk: the middle one counts.
double median(const std::vector<const Trial*>& trials, double Trial::*figure) {
  std::vector<double> values;
  for (const Trial* trial : trials) values.push_back(trial->*figure);
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::vector<ForecastDevice> devices_of(const Trial& trial) {
  std::vector<ForecastDevice> devices;
  for (const TrialDevice& device : trial.devices) devices.push_back({device.model, device.speed, device.core});
  return devices;
}

// By number of workers: on lines between those measured, beyond the last one on with it.
double by_count(const std::map<int, double>& known, int workers) {
  if (known.empty()) return 0;
  const auto above = known.lower_bound(workers);
  if (above != known.end() && (above->first == workers || above == known.begin())) return above->second;
  const auto last = above == known.end() ? std::prev(known.end()) : above;
  if (last == known.begin()) return last->second;
  const auto before = std::prev(last);
  const double slope = (last->second - before->second) / (last->first - before->first);
  return std::max(0.0, last->second + (above == known.end() ? std::max(0.0, slope) : slope) * (workers - last->first));
}

}  // namespace

double wait_growth(int workers) {
  // Expected largest of n standard normal numbers.
  static constexpr double kLargest[] = {0, 0, .5642, .8463, 1.0294, 1.1630, 1.2672, 1.3522, 1.4236};
  const int n = std::clamp(workers, 0, 1 << 20);
  const double largest = n <= 8 ? kLargest[n] : std::sqrt(2 * std::log(n)) - .62;  // within 2 % up to 64
  return largest / kLargest[2];
}

StepModel::StepModel(const Calibration& calibration, const std::string& precision) : cores_(calibration.cores) {
  std::map<std::string, std::vector<const Trial*>> alone;
  for (const Trial& trial : calibration.trials)
    if (trial.precision == precision && trial.devices.size() == 1 && trial.step_seconds > 0)
      alone[trial.devices[0].model].push_back(&trial);
  if (alone.empty())
    throw ConfigError("there is no measurement of one device in " + precision,
                      "a forecast scales what one device was seen to do", "run `tandem plan` with --calibrate");
  size_t most = 0;
  int trials = 0;
  for (auto& [model, list] : alone) {
    std::sort(list.begin(), list.end(), [](const Trial* a, const Trial* b) { return a->batch < b->batch; });
    std::vector<std::pair<double, double>> whole;
    for (const Trial* trial : list) whole.emplace_back(static_cast<double>(trial->batch), trial->step_seconds);
    const Line line = fit(whole);
    for (const Trial* trial : list) {
      const auto batch = static_cast<double>(trial->batch);
      double divided = 0;
      if (is_cpu(model))
        divided = std::min(trial->compute_seconds, trial->step_seconds);
      else  // shards share launches: what grows with the batch can be divided, the launches can't
        divided = list.size() > 1 ? std::min(line.slope * batch, .95 * trial->step_seconds) : .5 * trial->step_seconds;
      alone_[model].push_back({batch, divided * trial->devices[0].speed, trial->step_seconds - divided});
      deviation_ += trial->deviation;
      ++trials;
    }
    if (list.size() > most) most = list.size(), reference_ = model;
    const Trial& first = *list.front();
    shards_ = first.shards;
    per_device_ = first.per_device;
    floats_ = first.shape.combine_floats;
    if (first.batch > 0) samples_per_batch_ = first.samples / static_cast<double>(first.batch);
    state_bytes_ = first.shape.replicated_bytes() + first.shape.shard_bytes * static_cast<double>(first.shards);
  }
  std::map<int, std::vector<const Trial*>> by_workers;
  std::vector<const Trial*> several;
  for (const Trial& trial : calibration.trials) {
    if (trial.precision != precision || trial.devices.empty() || trial.step_seconds <= 0) continue;
    by_workers[static_cast<int>(trial.devices.size())].push_back(&trial);
    if (trial.devices.size() < 2) continue;
    several.push_back(&trial);
    deviation_ += trial.deviation;
    ++trials;
  }
  deviation_ /= std::max(1, trials);
  for (const auto& [workers, list] : by_workers) {
    start_[workers] = median(list, &Trial::start_seconds);
    end_[workers] = median(list, &Trial::end_seconds);
    snapshot_[workers] = median(list, &Trial::snapshot_seconds);
  }
  learn_pairs(several);
  learn_stretch(several);
}

// Crowd and combine of two, as the mean of the trials that measured them.
void StepModel::learn_pairs(const std::vector<const Trial*>& several) {
  std::vector<double> crowds, combines;
  for (const Trial* trial : several) {
    if (trial->devices.size() != 2) continue;
    const std::vector<ForecastDevice> devices = devices_of(*trial);
    const StepForecast forecast = unstretched(trial->batch, devices);
    double crowd = 1;
    if (is_cpu(devices[0].model) && forecast.compute > 0 && trial->compute_seconds > 0) {
      crowd = std::clamp(trial->compute_seconds / forecast.compute, .9, 2.0);
      crowds.push_back(crowd);
      crowded_cores_ = side_by_side(devices) > 1;
    }
    combines.push_back(std::max(0.0, trial->step_seconds - forecast.compute * crowd - forecast.fixed));
  }
  if (!crowds.empty()) crowd2_ = mean_of(crowds);
  if (combines.empty()) return;
  // GPUs of several models: the slower pair's, which all would wait for.
  combine2_ = crowds.empty() ? *std::ranges::max_element(combines) : mean_of(combines);
}

void StepModel::learn_stretch(const std::vector<const Trial*>& several) {
  const Trial* longest = nullptr;
  for (const Trial* trial : several)
    if (!longest || trial->devices.size() > longest->devices.size()) longest = trial;
  // Pairs of one model each say nothing of a mixture.
  const auto same = [](const TrialDevice& a, const TrialDevice& b) { return a.model == b.model && a.speed == b.speed; };
  for (const Trial* trial : several)
    if (!std::equal(trial->devices.begin(), trial->devices.end(), longest->devices.begin(), same)) return;
  Stretch found;  // put in place at once: unstretched() is what it is measured against
  for (const Trial* trial : several)
    found.add(static_cast<int>(trial->devices.size()), trial->batch,
              trial->step_seconds / unstretched(trial->batch, devices_of(*trial)).seconds);
  stretch_ = std::move(found);
}

double StepModel::combine2() const {
  return combine2_ >= 0 ? combine2_ : kUnmeasuredCombine + floats_ * kSecondsPerFloat;
}

const std::vector<StepModel::Point>& StepModel::points(const std::string& model, double& factor) const {
  const auto own = alone_.find(model);
  const auto& reference = alone_.at(reference_);
  factor = 1;
  if (own == alone_.end()) return reference;
  if (own->second.size() >= reference.size()) return own->second;
  // Tried at fewer batches: as the reference, at the speed it had there.
  for (const Point& point : reference)
    for (const Point& mine : own->second)
      if (point.batch == mine.batch && point.variable > 0) factor = mine.variable / point.variable;
  return reference;
}

double StepModel::variable(const std::string& model, double batch) const {
  double factor = 1;
  std::vector<std::pair<double, double>> line;
  for (const Point& point : points(model, factor)) line.emplace_back(point.batch, point.variable);
  return factor * through(line, batch);
}

double StepModel::fixed(const std::string& model, double batch) const {
  double factor = 1;
  std::vector<std::pair<double, double>> line;
  for (const Point& point : points(model, factor)) line.emplace_back(point.batch, point.fixed);
  // It hardly depends on the batch, and beyond what was tried its slope is noise.
  return through(line, std::clamp(batch, line.front().first, line.back().first));
}

std::vector<int> StepModel::deal(int64_t batch, const std::vector<ForecastDevice>& devices, double& efficiency) const {
  if (per_device_) return std::vector<int>(devices.size(), 1);
  std::map<int, double> speeds;
  for (size_t i = 0; i < devices.size(); ++i)
    speeds[static_cast<int>(i)] =
        devices[i].speed / std::max(1e-12, variable(devices[i].model, static_cast<double>(batch)));
  const std::vector<ShardAssignment> plan = make_plan(static_cast<int>(shards_), speeds, {});
  efficiency = cost_of(static_cast<int>(shards_), plan, speeds, {}).efficiency;
  std::vector<int> shards(devices.size());
  for (const ShardAssignment& a : plan) shards[static_cast<size_t>(a.rank)] = a.range.size();
  return shards;
}

double StepModel::turns(const std::vector<ForecastDevice>& devices) const {
  std::map<int, int> slots;
  int cpus = 0, placed = 0;
  for (const ForecastDevice& device : devices) {
    if (!is_cpu(device.model)) continue;
    ++cpus;
    if (device.core >= 0) ++placed, ++slots[device.core];
  }
  if (cpus == 0) return 1;
  if (placed < cpus) return std::max(1.0, static_cast<double>(cpus) / cores_);
  int most = 1;
  for (const auto& [core, count] : slots) most = std::max(most, count);
  return most;
}

int StepModel::side_by_side(const std::vector<ForecastDevice>& devices) const {
  std::set<int> used;
  int cpus = 0, placed = 0;
  for (const ForecastDevice& device : devices) {
    if (!is_cpu(device.model)) continue;
    ++cpus;
    if (device.core >= 0) ++placed, used.insert(device.core);
  }
  return placed == cpus ? static_cast<int>(used.size()) : std::min(cpus, cores_);
}

double StepModel::crowd(const std::vector<ForecastDevice>& devices) const {
  double cpus = 0, wanted = 0;
  for (const ForecastDevice& device : devices)
    if (is_cpu(device.model)) ++cpus, wanted += device.speed;
  if (cpus <= 1) return 1;
  const double others = crowded_cores_ ? side_by_side(devices) - 1 : 1;
  return (1 + (crowd2_ - 1) * others) * std::max(1.0, wanted / cores_);
}

StepForecast StepModel::unstretched(int64_t batch, const std::vector<ForecastDevice>& devices) const {
  StepForecast forecast;
  const auto b = static_cast<double>(batch);
  forecast.shards = deal(batch, devices, forecast.efficiency);
  for (size_t i = 0; i < devices.size(); ++i) {
    const double share = per_device_ ? 1 : static_cast<double>(forecast.shards[i]) / static_cast<double>(shards_);
    forecast.compute = std::max(forecast.compute, share * variable(devices[i].model, b) / devices[i].speed);
    forecast.fixed = std::max(forecast.fixed, fixed(devices[i].model, b));
  }
  forecast.compute *= crowd(devices);
  forecast.fixed *= turns(devices);
  const int workers = static_cast<int>(devices.size());
  if (workers > 1) {
    const double moved = std::min(.8 * combine2(), floats_ * kSecondsPerFloat);
    forecast.combine = (combine2() - moved) * wait_growth(workers) + moved * 2 * (workers - 1) / workers;
  }
  forecast.seconds = forecast.compute + forecast.fixed + forecast.combine;
  return forecast;
}

StepForecast StepModel::step(int64_t batch, const std::vector<ForecastDevice>& devices) const {
  StepForecast forecast = unstretched(batch, devices);
  const int workers = static_cast<int>(devices.size());
  const double stretch = stretch_.at(workers, static_cast<double>(batch));
  for (double* part : {&forecast.seconds, &forecast.compute, &forecast.fixed, &forecast.combine}) *part *= stretch;
  forecast.error = .04 + deviation_;
  if (workers > 1 && !measured_combine()) forecast.error += .1;
  if (workers > 2 && !measured(workers)) forecast.error += .02 * std::log2(workers / 2.0);
  return forecast;
}

double StepModel::start_seconds(int workers) const { return by_count(start_, workers); }

double StepModel::end_seconds(int workers, double state_bytes) const {
  return by_count(end_, workers) + std::max(0.0, state_bytes - state_bytes_) / kSaveBytesPerSecond;
}

double StepModel::snapshot_seconds(int workers, double state_bytes) const {
  const double grown = state_bytes_ > 0 ? std::max(1.0, state_bytes / state_bytes_) : 1;
  return by_count(snapshot_, workers) * grown;
}

double StepModel::samples(int64_t batch, int workers) const {
  return samples_per_batch_ * static_cast<double>(batch) * (per_device_ ? workers : 1);
}

std::vector<DeviceChoice> choose_devices(const StepModel& model, int64_t batch,
                                         const std::vector<ForecastDevice>& devices, int most) {
  std::vector<DeviceChoice> best(static_cast<size_t>(std::max(0, most)));
  const int count = static_cast<int>(devices.size());
  const auto consider = [&](const std::vector<int>& used) {
    if (static_cast<int>(used.size()) > most || static_cast<int64_t>(used.size()) > model.shards()) return;
    std::vector<ForecastDevice> chosen;
    for (const int i : used) chosen.push_back(devices[static_cast<size_t>(i)]);
    DeviceChoice& now = best[used.size() - 1];
    StepForecast step = model.step(batch, chosen);
    if (now.used.empty() || step.seconds < now.step.seconds * (1 - 1e-9)) now = {used, std::move(step)};
  };
  std::set<std::tuple<std::string, double, int>> kinds;
  for (const ForecastDevice& device : devices) kinds.insert({device.model, device.speed, device.core});
  if (kinds.size() > 1 && count <= 12) {
    for (int mask = 1; mask < 1 << count; ++mask) {
      std::vector<int> used;
      for (int i = 0; i < count; ++i)
        if (mask >> i & 1) used.push_back(i);
      consider(used);
    }
  } else {
    std::vector<int> order(devices.size()), used;
    for (int i = 0; i < count; ++i) order[static_cast<size_t>(i)] = i;
    const auto alone = [&](int i) { return model.step(batch, {devices[static_cast<size_t>(i)]}).seconds; };
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return alone(a) < alone(b); });
    for (const int i : order) {
      used.push_back(i);
      std::vector<int> sorted = used;
      std::sort(sorted.begin(), sorted.end());
      consider(sorted);
    }
  }
  std::erase_if(best, [](const DeviceChoice& choice) { return choice.used.empty(); });
  return best;
}

}  // namespace tandem
