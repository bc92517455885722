#include "runs/run_reader.h"

#include <sys/stat.h>

#include <cmath>

#include "telemetry/atomic_file.h"
#include "telemetry/learning_figures.h"
#include "telemetry/resolved_recipe.h"
#include "telemetry/run_summary.h"

namespace tandem {
namespace {

constexpr const char* kFiles[] = {"run.json", "training_stats.json", "recipe.toml", "energy.json"};

std::string text_at(const nlohmann::json& object, const char* key) {
  return object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}
int64_t whole_of(const nlohmann::json& object, const char* key) {
  return object.contains(key) && object[key].is_number_integer() ? object[key].get<int64_t>() : 0;
}
double number_of(const nlohmann::json& object, const char* key) {
  return object.contains(key) && object[key].is_number() ? object[key].get<double>() : kAbsent;
}

// The newest value of each metric. A metric that is measured now and then (an evaluation) is in few entries only, so
// all are walked and later ones win.
void add_metrics(RunRow& row, const nlohmann::json& stats) {
  double seconds = 0, samples = 0;
  for (const auto& entry : stats) {
    if (!entry.is_object()) continue;
    row.step = std::max(row.step, whole_of(entry, "step"));
    if (std::isfinite(number_of(entry, "loss"))) row.metrics["loss"] = number_of(entry, "loss");
    if (std::isfinite(number_of(entry, "seconds"))) seconds += number_of(entry, "seconds");
    if (std::isfinite(number_of(entry, "samples"))) samples += number_of(entry, "samples");
    for (const auto& [group, values] : entry.items()) {
      if (!values.is_object() || group == "phases" || group == "training_losses" || group == "energy") continue;
      for (const auto& [name, value] : values.items())
        if (value.is_number()) row.metrics[group == "metrics" ? name : group + "/" + name] = value.get<double>();
    }
  }
  if (seconds > 0) row.metrics["samples_per_s"] = samples / seconds;
  if (row.seconds == 0) row.seconds = seconds;
}

}  // namespace

RunRow read_run(const std::filesystem::path& dir) {
  const nlohmann::json run = read_run_json(dir);
  RunRow row;
  row.dir = dir;
  row.id = text_at(run, "id");
  if (row.id.empty()) row.id = dir.filename().string();
  row.recipe = text_at(run, "recipe");
  row.status = present_status(run, dir);
  row.started = text_at(run, "started");
  row.step = whole_of(run, "step");
  row.total_steps = whole_of(run, "total_steps");
  row.seconds = std::isfinite(number_of(run, "seconds")) ? number_of(run, "seconds") : 0;
  row.loss = number_of(run, "loss");
  row.digest = text_at(run, "digest");
  row.kind = text_at(run, "kind");
  row.exit_code = static_cast<int>(whole_of(run, "exit_code"));
  const auto stats = nlohmann::json::parse(read_small_file(dir / "training_stats.json").value_or("[]"), nullptr, false);
  if (stats.is_array()) add_metrics(row, stats);
  if (std::isfinite(row.loss))
    row.metrics["loss"] = row.loss;
  else if (row.metrics.contains("loss"))
    row.loss = row.metrics["loss"];
  if (run.contains("extra") && run["extra"].is_object())
    for (const auto& [name, value] : run["extra"].items()) {
      if (!value.is_number()) continue;
      if (FigureName figure; parse_figure_name(name, figure))
        row.metrics[name] = value.get<double>();  // of the last step: newer than the mean of the last entry
      else
        row.metrics.emplace(name, value.get<double>());
    }
  // energy.json is written while the run goes on; what stands in run.json is from its last end.
  const auto energy = nlohmann::json::parse(read_small_file(dir / "energy.json", 1 << 20).value_or(""), nullptr, false);
  if (energy.is_object())
    for (const auto& [key, name] :
         {std::pair{"kwh", "energy_kwh"}, {"mean_w", "mean_power_w"}, {"cost", "energy_cost"}})
      if (std::isfinite(number_of(energy, key))) row.metrics[name] = number_of(energy, key);
  for (const auto& setting : read_resolved_recipe(read_small_file(dir / "recipe.toml", 1 << 20).value_or("")))
    row.settings[setting.key] = setting.value;
  if (row.recipe.empty() && row.settings.contains("recipe")) row.recipe = row.settings["recipe"];
  return row;
}

int64_t run_stamp(const std::filesystem::path& dir) {
  uint64_t mix = 0x9E3779B97F4A7C15;
  for (const char* name : kFiles) {
    struct stat s {};
    const bool there = ::stat((dir / name).c_str(), &s) == 0;
    for (const uint64_t part :
         {there ? static_cast<uint64_t>(s.st_mtim.tv_sec) * 1000000000u + static_cast<uint64_t>(s.st_mtim.tv_nsec) : 0,
          there ? static_cast<uint64_t>(s.st_size) : 0, there ? static_cast<uint64_t>(s.st_ino) : 0})
      mix = (mix ^ part) * 0xD6E8FEB86659FD93, mix ^= mix >> 32;
  }
  return static_cast<int64_t>(mix);
}

}  // namespace tandem
