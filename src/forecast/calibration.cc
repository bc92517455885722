#include "forecast/calibration.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/sha256.h"
#include "config/gpu_memory.h"
#include "telemetry/atomic_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kVersion = 4;

Json to_json(const JobShape& shape) {
  return {{"total_steps", shape.total_steps},       {"unit", shape.unit},
          {"weights_bytes", shape.weights_bytes},   {"optimizer_bytes", shape.optimizer_bytes},
          {"other_bytes", shape.other_bytes},       {"shard_bytes", shape.shard_bytes},
          {"combine_floats", shape.combine_floats}, {"kept_bytes", shape.kept_bytes}};
}

JobShape shape_from(const Json& json) {
  return {.total_steps = json.at("total_steps"),
          .unit = json.at("unit"),
          .weights_bytes = json.at("weights_bytes"),
          .optimizer_bytes = json.at("optimizer_bytes"),
          .other_bytes = json.at("other_bytes"),
          .shard_bytes = json.at("shard_bytes"),
          .combine_floats = json.at("combine_floats"),
          .kept_bytes = json.at("kept_bytes")};
}

Json to_json(const Trial& trial) {
  Json devices = Json::array();
  for (const TrialDevice& device : trial.devices)
    devices.push_back({{"model", device.model}, {"speed", device.speed}, {"core", device.core}});
  return {{"devices", devices},
          {"batch", trial.batch},
          {"shards", trial.shards},
          {"per_device", trial.per_device},
          {"precision", trial.precision},
          {"steps", trial.steps},
          {"step_seconds", trial.step_seconds},
          {"deviation", trial.deviation},
          {"samples", trial.samples},
          {"compute_seconds", trial.compute_seconds},
          {"combine_seconds", trial.combine_seconds},
          {"snapshots", trial.snapshots},
          {"snapshot_seconds", trial.snapshot_seconds},
          {"start_seconds", trial.start_seconds},
          {"end_seconds", trial.end_seconds},
          {"memory_bytes", trial.memory_bytes},
          {"memory_start", trial.memory_start},
          {"most_held", trial.most_held},
          {"in_pass", trial.in_pass},
          {"power_w", trial.power_w},
          {"shape", to_json(trial.shape)}};
}

Trial trial_from(const Json& json) {
  Trial trial;
  for (const Json& device : json.at("devices"))
    trial.devices.push_back(
        {device.at("model").get<std::string>(), device.at("speed").get<double>(), device.at("core").get<int>()});
  trial.batch = json.at("batch");
  trial.shards = json.at("shards");
  trial.per_device = json.at("per_device");
  trial.precision = json.at("precision");
  trial.steps = json.at("steps");
  trial.step_seconds = json.at("step_seconds");
  trial.deviation = json.at("deviation");
  trial.samples = json.at("samples");
  trial.compute_seconds = json.at("compute_seconds");
  trial.combine_seconds = json.at("combine_seconds");
  trial.snapshots = json.at("snapshots");
  trial.snapshot_seconds = json.at("snapshot_seconds");
  trial.start_seconds = json.at("start_seconds");
  trial.end_seconds = json.at("end_seconds");
  trial.memory_bytes = json.at("memory_bytes");
  trial.memory_start = json.at("memory_start");
  trial.most_held = json.at("most_held");
  trial.in_pass = json.at("in_pass");
  trial.power_w = json.at("power_w");
  trial.shape = shape_from(json.at("shape"));
  return trial;
}

// A file may have been edited, or cut short and mended by somebody: a forecast from it would be nonsense, or a crash.
bool makes_sense(const Trial& trial) {
  const auto fine = [](double value) { return std::isfinite(value) && value >= 0; };
  const JobShape& s = trial.shape;
  for (const double value : {trial.step_seconds, trial.deviation, trial.samples, trial.compute_seconds,
                             trial.combine_seconds, trial.snapshot_seconds, trial.start_seconds, trial.end_seconds,
                             trial.memory_bytes, trial.memory_start, trial.power_w, s.weights_bytes, s.optimizer_bytes,
                             s.other_bytes, s.shard_bytes, s.combine_floats, s.kept_bytes})
    if (!fine(value)) return false;
  for (const TrialDevice& device : trial.devices)
    if (!(device.speed > 0 && device.speed <= 1) || device.model.empty()) return false;
  return !trial.devices.empty() && trial.batch >= 0 && trial.shards >= 1 && trial.steps >= 0 && trial.snapshots >= 0 &&
         trial.most_held >= 0 && trial.in_pass >= 0 && s.total_steps >= 0;
}

}  // namespace

double JobShape::other_on_device(bool gpu) const {
  return gpu && kept_bytes > static_cast<double>(kMostKeptOnGpu) ? other_bytes - kept_bytes : other_bytes;
}

double load_error(const Calibration& calibration) {
  return std::max(0.0, calibration.load) / std::max(1, calibration.cores);
}

Json to_json(const Calibration& calibration) {
  Json trials = Json::array();
  for (const Trial& trial : calibration.trials) trials.push_back(to_json(trial));
  return {{"version", kVersion},      {"recipe", calibration.recipe}, {"machine", calibration.machine},
          {"made", calibration.made}, {"cores", calibration.cores},   {"load", calibration.load},
          {"trials", trials}};
}

std::optional<Calibration> calibration_from(const Json& json) {
  try {
    if (json.at("version") != kVersion) return std::nullopt;
    Calibration calibration{.recipe = json.at("recipe"),
                            .machine = json.at("machine"),
                            .made = json.at("made"),
                            .cores = json.at("cores"),
                            .load = json.at("load"),
                            .trials = {}};
    for (const Json& trial : json.at("trials")) calibration.trials.push_back(trial_from(trial));
    if (calibration.trials.empty() || !std::ranges::all_of(calibration.trials, makes_sense) || calibration.cores < 1)
      return std::nullopt;
    return calibration;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

Calibration trials_for(const Calibration& calibration, const std::vector<TrialDevice>& devices) {
  Calibration some = calibration;
  std::erase_if(some.trials, [&](const Trial& trial) {
    if (trial.devices.size() == 1)  // any GPU shows how the others' steps grow with the batch
      return trial.devices[0].model == "cpu" && std::ranges::find(devices, trial.devices[0]) == devices.end();
    const auto common = static_cast<long>(std::min(trial.devices.size(), devices.size()));
    return !std::equal(devices.begin(), devices.begin() + common, trial.devices.begin());
  });
  const bool alone = std::ranges::any_of(some.trials, [](const Trial& trial) { return trial.devices.size() == 1; });
  return alone ? some : calibration;
}

fs::path forecast_cache() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache) return fs::path(cache) / "tandem" / "plan";
  if (const char* home = std::getenv("HOME"); home && *home) return fs::path(home) / ".cache" / "tandem" / "plan";
  return {};
}

std::string calibration_key(const std::string& machine, const std::string& recipe, const std::string& settings) {
  Sha256 hash;
  for (const std::string& part : {machine, recipe, settings}) hash.update(part + '\n');
  return recipe + "-" + hash.hex().substr(0, 16);
}

std::optional<Calibration> load_calibration(const fs::path& cache, const std::string& key) {
  if (cache.empty()) return std::nullopt;
  const auto text = read_small_file(cache / (key + ".json"), 1 << 20);
  if (!text) return std::nullopt;
  const Json json = Json::parse(*text, nullptr, false);
  return json.is_discarded() ? std::nullopt : calibration_from(json);
}

bool keep_calibration(const fs::path& cache, const std::string& key, const Calibration& calibration) {
  if (cache.empty()) return false;
  std::error_code none;
  fs::create_directories(cache, none);
  try {
    write_file_atomically(cache / (key + ".json"), to_json(calibration).dump(1) + "\n", Durability::kProcessDeath);
    return true;
  } catch (const IoError&) {
    return false;
  }
}

}  // namespace tandem
