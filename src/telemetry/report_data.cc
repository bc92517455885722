#include "telemetry/report_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/errors.h"
#include "telemetry/atomic_file.h"
#include "telemetry/confusion_table.h"
#include "telemetry/event_log.h"
#include "telemetry/human.h"
#include "telemetry/learning_figures.h"
#include "telemetry/metrics_file.h"
#include "telemetry/report_gpus.h"
#include "telemetry/report_parts.h"
#include "telemetry/run_name.h"
#include "telemetry/run_summary.h"
#include "telemetry/series.h"

namespace tandem {
namespace {

constexpr size_t kMostSkips = 200, kMostPhases = 12;

// Sums over the whole run.
struct Totals {
  double seconds = 0, samples = 0, first_time = kAbsent, last_time = kAbsent, loss = kAbsent;
  int64_t steps = 0, skipped = 0, last_step = 0;
  std::vector<std::pair<std::string, double>> phases;
  std::vector<int64_t> skips;
  LearningFigures figures;
  std::vector<ConfusionTable> confusion;  // the newest ones
  int64_t confusion_step = 0;

  void add(const StepRecord& r) {
    ++steps;
    last_step = std::max(last_step, r.step);
    if (std::isfinite(r.seconds)) seconds += r.seconds;
    if (std::isfinite(r.samples)) samples += r.samples;
    if (std::isnan(first_time)) first_time = r.time;
    last_time = r.time;
    figures.take(r.metrics);
    if (std::ranges::any_of(r.metrics, [](const auto& m) { return is_confusion_cell(m.first); }))
      confusion = confusion_tables(r.metrics), confusion_step = r.step;
    if (std::isfinite(r.loss)) loss = r.loss;
    if (r.skipped && ++skipped <= static_cast<int64_t>(kMostSkips)) skips.push_back(r.step);
    for (const auto& phase : r.phase_seconds) {
      if (!std::isfinite(phase.second)) continue;
      const auto at = std::find_if(phases.begin(), phases.end(), [&](const auto& p) { return p.first == phase.first; });
      if (at != phases.end())
        at->second += phase.second;
      else if (phases.size() < kMostPhases)
        phases.push_back(phase);
    }
  }
};

void add_record(SeriesSet& set, const StepRecord& r) {
  const std::string prefix = r.job.empty() ? "" : r.job + "|";
  const auto add = [&](size_t hint, const char* name, double value, double weight = 1) {
    if (prefix.empty())
      set.add(name, r.step, value, weight, hint);
    else
      set.add(prefix + name, r.step, value, weight);
  };
  add(0, "loss", r.loss);
  if (r.seconds > 0) add(1, "speed", r.samples / r.seconds, r.seconds);
  add(2, "lr", r.learning_rate);
  add(3, "grad_norm", r.grad_norm);
  add(4, "scale", r.loss_scale);
  for (size_t i = 0; i < r.metrics.size(); ++i) {
    if (is_confusion_cell(r.metrics[i].first)) continue;
    if (prefix.empty())
      set.add(r.metrics[i].first, r.step, r.metrics[i].second, 1, 5 + i);
    else
      set.add(prefix + r.metrics[i].first, r.step, r.metrics[i].second);
  }
}

// A scale that never moved is no news.
bool constant(const Series& series, double value) {
  return std::all_of(series.buckets.begin(), series.buckets.end(),
                     [&](const Bucket& b) { return b.empty() || (b.least == value && b.greatest == value); });
}

nlohmann::json facts_json(const Totals& totals) {
  const auto number = [](double value) {
    return std::isfinite(value) ? nlohmann::json(report_rounded(value)) : nlohmann::json();
  };
  return {{"steps", totals.last_step},
          {"seconds", number(totals.seconds)},
          {"samples", number(totals.samples)},
          {"samples_per_s", totals.seconds > 0 ? number(totals.samples / totals.seconds) : nlohmann::json()},
          {"loss", number(totals.loss)},
          {"return", totals.figures.returns_text()},
          {"score", totals.figures.scores_text()},
          {"skipped", totals.skipped},
          {"first", std::isnan(totals.first_time) ? "" : utc_iso(totals.first_time)},
          {"last", std::isnan(totals.last_time) ? "" : utc_iso(totals.last_time)}};
}

nlohmann::json confusion_json(const Totals& totals) {
  nlohmann::json tables = nlohmann::json::array();
  for (const ConfusionTable& table : totals.confusion) {
    nlohmann::json cells = nlohmann::json::array();
    for (const double cell : table.cells)
      cells.push_back(std::isfinite(cell) ? nlohmann::json(cell) : nlohmann::json());
    tables.push_back(
        {{"set", table.set}, {"step", totals.confusion_step}, {"classes", table.classes}, {"cells", cells}});
  }
  return tables;
}

nlohmann::json phases_json(const Totals& totals) {
  nlohmann::json phases = nlohmann::json::array();
  double named = 0;
  for (const auto& [name, seconds] : totals.phases) phases.push_back({name, report_rounded(seconds)}), named += seconds;
  if (named > 0 && totals.seconds - named > 0.001 * totals.seconds)
    phases.push_back({"other", report_rounded(totals.seconds - named)});
  return phases;
}

}  // namespace

nlohmann::json collect_report(const std::filesystem::path& run_dir, const ReportLimits& limits) {
  nlohmann::json notes = nlohmann::json::array();
  SeriesSet set(limits.most_buckets, 40);
  Totals totals;
  MetricsRead read;
  try {
    read = read_metrics(run_dir / "metrics.jsonl", [&](const StepRecord& r) { totals.add(r), add_record(set, r); });
  } catch (const IoError& error) {
    notes.push_back(error.what());
  }
  nlohmann::json evaluation = report_evaluation(run_dir);
  if (read.records == 0) notes.push_back("metrics.jsonl holds no record yet.");
  if (read.bad_count > 0)
    notes.push_back(fmt::format("metrics.jsonl: {} unreadable lines left out, the first is line {}: {}.",
                                read.bad_count, read.bad.front().line, read.bad.front().reason));
  if (set.left_out()) notes.push_back("Only the first 40 curves are shown.");

  const nlohmann::json run = read_run_json(run_dir);
  nlohmann::json data = {{"run", report_run_part(run)}, {"status", present_status(run, run_dir)}, {"notes", notes}};
  if (!run.contains("id"))
    data["run"]["id"] = std::filesystem::absolute(run_dir).lexically_normal().filename().string();
  if (const std::string name = run_name(run_dir); !name.empty()) data["run"]["title"] = fit(name, 100);

  data["evaluation"] = std::move(evaluation);
  data["confusion"] = confusion_json(totals);
  data["equity"] = report_equity(run_dir);
  data["energy"] = report_energy(run_dir);
  data["explain"] = report_explain(run_dir);
  data["gpus"] = report_gpus(run_dir, std::min<size_t>(240, limits.most_buckets));
  data["settings"] = report_settings(run_dir, limits.most_settings);
  data["env"] = report_env(run_dir);
  data["facts"] = facts_json(totals);
  data["skips"] = totals.skips;
  data["events"] = report_events(read_events(run_dir / "events.jsonl"), limits.most_events);
  data["phases"] = phases_json(totals);

  nlohmann::json series = report_series(set);
  for (auto it = series.begin(); it != series.end();) {
    const Series* source = set.find((*it)["name"].get<std::string>());
    const bool dull =
        source != nullptr && (source->name == "scale" || source->name.ends_with("|scale")) && constant(*source, 1);
    it = dull ? series.erase(it) : it + 1;
  }
  data["grid"] = {{"first", set.step_of(0)}, {"width", set.steps_per_bucket()}};
  data["series"] = std::move(series);
  return data;
}

}  // namespace tandem
