#include "forecast/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/errors.h"
#include "config/spelling.h"

namespace tandem {
namespace {

double sharing(const std::vector<PlanDevice>& devices, const PlanDevice& one) {
  if (one.gpu.empty()) return 1;
  return static_cast<double>(std::ranges::count(devices, one.gpu, &PlanDevice::gpu));
}

PlanRow row_of(const PlanQuestion& question, const StepModel& steps, const MemoryModel* memory, int64_t batch,
               const DeviceChoice& choice) {
  PlanRow row;
  row.batch = batch;
  row.used = choice.used;
  row.step = choice.step;
  const int workers = static_cast<int>(choice.used.size());
  row.steps_per_s = row.step.seconds > 0 ? 1 / row.step.seconds : 0;
  row.samples_per_s = row.steps_per_s * steps.samples(batch, workers);
  const JobShape& job = question.job;
  std::vector<ForecastDevice> used;
  for (const int i : row.used) used.push_back(question.devices[static_cast<size_t>(i)].device);
  const double busy = busy_cores(used, question.cores);
  if (job.total_steps > 0) {
    const RunTimes times = run_times(steps, row.step, job, workers, question.checkpoints, busy);
    row.start_seconds = times.start;
    row.pauses = times.pauses;
    row.end_seconds = times.end;
    row.seconds = times.seconds();
  }
  std::vector<PlanDevice> here;
  for (const int i : row.used) here.push_back(question.devices[static_cast<size_t>(i)]);
  row.guide = guide_figures(question.recipe, workers);
  const auto is_h100 = [](const PlanDevice& device) { return device.device.model.starts_with("H100"); };
  if (row.guide && !std::ranges::all_of(here, is_h100)) row.guide->minutes = row.guide->dollars = std::nullopt;
  for (const PlanDevice& device : here) {
    row.names.push_back(device.name);
    double usable = 0;
    if (device.memory_bytes > 0)
      usable = question.memory_fraction * device.memory_bytes / sharing(here, device);
    else if (device.device.model == "cpu")
      usable = question.host_bytes / workers;
    if (usable > 0) row.memory_limit = row.memory_limit > 0 ? std::min(row.memory_limit, usable) : usable;
  }
  std::vector<double> gpus;
  for (const size_t i : different_gpus(here)) gpus.push_back(here[i].watts);
  if (memory) row.memory = memory->most(job, batch, row.step.shards, snapshot_seconds(row.pauses, row.seconds));
  row.watts = power_of(gpus, question.measured_w * static_cast<double>(gpus.size()), busy).typical_w;
  row.kwh = energy_kwh(row.watts, row.seconds);
  row.cost = row.kwh * question.prices.kwh;
  if (question.rent && row.seconds > 0)
    if (const auto rented = question.rent(row.used)) {
      row.cloud = rented->name;
      row.cloud_cost = rented->per_hour * row.seconds / 3600;
    }
  row.error = std::max(row.step.error, question.past_error);
  return row;
}

int64_t whole_number(std::string_view text, std::string_view all, const char* flag, const char* todo) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > 1'000'000'000)
    throw ConfigError(fmt::format("{} {}: \"{}\" will not do", flag, printable(all), printable(text)),
                      "it takes whole numbers from 1 on", todo);
  return value;
}

template <class F>
void each_part(std::string_view text, F f) {
  while (true) {
    const size_t comma = text.find(',');
    f(text.substr(0, comma));
    if (comma == std::string_view::npos) return;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

std::vector<size_t> different_gpus(const std::vector<PlanDevice>& devices) {
  std::vector<size_t> gpus;
  for (size_t i = 0; i < devices.size(); ++i) {
    const bool seen = !devices[i].gpu.empty() &&
                      std::ranges::any_of(gpus, [&](size_t other) { return devices[other].gpu == devices[i].gpu; });
    if (devices[i].watts > 0 && !seen) gpus.push_back(i);
  }
  return gpus;
}

double busy_cores(const std::vector<ForecastDevice>& devices, int cores) {
  double wanted = 0;
  for (const ForecastDevice& device : devices)
    if (device.model == "cpu") wanted += device.speed;
  return std::min(1.0, wanted / std::max(1, cores));
}

RunTimes run_times(const StepModel& steps, const StepForecast& step, const JobShape& job, int workers,
                   const CheckpointRule& rule, double busy_cores) {
  const double bytes = job.replicated_bytes() + job.shard_bytes * static_cast<double>(steps.shards_of(workers));
  const auto count = static_cast<double>(job.total_steps);
  return {.start = steps.start_seconds(workers),
          .training = count * step.seconds,
          .end = steps.end_seconds(workers, bytes),
          .pauses = pauses_of({.rule = rule,
                               .training = count * step.seconds,
                               .steps = count,
                               .snapshot = steps.snapshot_seconds(workers, bytes),
                               .bytes = bytes,
                               .busy_cores = busy_cores})};
}

std::vector<PlanRow> plan_rows(const PlanQuestion& question, const StepModel& steps, const MemoryModel* memory,
                               const std::string& precision) {
  std::vector<PlanRow> rows;
  std::vector<ForecastDevice> devices;
  for (const PlanDevice& device : question.devices) devices.push_back(device.device);
  const int most = question.counts.empty() ? static_cast<int>(devices.size()) : question.counts.back();
  for (const int64_t batch : question.batches) {
    double alone = 0;
    for (const DeviceChoice& choice : choose_devices(steps, batch, devices, most)) {
      PlanRow row = row_of(question, steps, memory, batch, choice);
      row.precision = precision;
      if (choice.used.size() == 1) alone = row.samples_per_s;
      if (alone > 0) row.speedup = row.samples_per_s / alone;
      row.efficiency = row.speedup / static_cast<double>(choice.used.size());
      if (question.counts.empty() || std::ranges::binary_search(question.counts, static_cast<int>(choice.used.size())))
        rows.push_back(std::move(row));
    }
  }
  return rows;
}

const PlanRow* best_row(const std::vector<PlanRow>& rows, int64_t batch, const std::string& precision) {
  const PlanRow* best = nullptr;
  for (const PlanRow& row : rows) {
    if (row.batch != batch || row.precision != precision || !row.fits()) continue;
    if (!best || row.samples_per_s > 1.02 * best->samples_per_s) best = &row;
  }
  return best;
}

std::vector<int> parse_counts(std::string_view text, int most) {
  constexpr const char* kTodo = "write --gpus 1..8, --gpus 4 or --gpus 1,2,4";
  std::vector<int> counts;
  each_part(text, [&](std::string_view part) {
    const size_t dots = part.find("..");
    const int64_t from = whole_number(part.substr(0, dots), text, "--gpus", kTodo);
    const int64_t to =
        dots == std::string_view::npos ? from : whole_number(part.substr(dots + 2), text, "--gpus", kTodo);
    if (from > to)
      throw ConfigError(fmt::format("--gpus {}: {} is above {}", printable(text), from, to), "it counts upwards",
                        kTodo);
    if (to > most)
      throw ConfigError(fmt::format("--gpus {}: there are {} devices", printable(text), most),
                        "a plan is for the devices at hand, or for those that --hardware names",
                        "ask for hardware that is not here with --hardware 8xH100, say");
    for (int64_t n = from; n <= to; ++n) counts.push_back(static_cast<int>(n));
  });
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

std::vector<int64_t> parse_batches(std::string_view text) {
  std::vector<int64_t> batches;
  each_part(text, [&](std::string_view part) {
    const int64_t batch = whole_number(part, text, "--batch", "write --batch 256 or --batch 128,256,512");
    if (std::ranges::find(batches, batch) == batches.end()) batches.push_back(batch);
  });
  return batches;
}

}  // namespace tandem
