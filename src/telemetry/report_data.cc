#include "telemetry/report_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/errors.h"
#include "telemetry/atomic_file.h"
#include "telemetry/event_log.h"
#include "telemetry/human.h"
#include "telemetry/metrics_file.h"
#include "telemetry/report_gpus.h"
#include "telemetry/resolved_recipe.h"
#include "telemetry/run_summary.h"
#include "telemetry/series.h"

namespace tandem {
namespace {

constexpr size_t kMostSkips = 200, kMostPhases = 12;

// Five significant digits: more than a screen can show, and half the bytes.
double rounded(double value) {
  if (!std::isfinite(value) || value == 0) return value;
  return std::strtod(fmt::format("{:.5g}", value).c_str(), nullptr);
}

// Sums over the whole run.
struct Totals {
  double seconds = 0, samples = 0, first_time = kAbsent, last_time = kAbsent, loss = kAbsent;
  int64_t steps = 0, skipped = 0, last_step = 0;
  std::vector<std::pair<std::string, double>> phases;
  std::vector<int64_t> skips;

  void add(const StepRecord& r) {
    ++steps;
    last_step = std::max(last_step, r.step);
    if (std::isfinite(r.seconds)) seconds += r.seconds;
    if (std::isfinite(r.samples)) samples += r.samples;
    if (std::isnan(first_time)) first_time = r.time;
    last_time = r.time;
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

nlohmann::json series_json(const SeriesSet& set) {
  nlohmann::json out = nlohmann::json::array();
  for (const Series& series : set.all()) {
    nlohmann::json mean = nlohmann::json::array(), least = mean, greatest = mean, at = mean;
    bool holes = false;
    for (const Bucket& b : series.buckets) holes = holes || b.empty();
    // Only loss keeps its range: the others are read for their trend, and the ranges would be most of the page.
    const bool range = set.steps_per_bucket() > 1 && (series.name == "loss" || series.name.ends_with("|loss"));
    for (size_t i = 0; i < series.buckets.size(); ++i) {
      const Bucket& b = series.buckets[i];
      if (b.empty()) continue;
      mean.push_back(rounded(b.mean()));
      if (range) least.push_back(rounded(b.least)), greatest.push_back(rounded(b.greatest));
      if (holes) at.push_back(i);
    }
    nlohmann::json one = {{"name", series.name}, {"mean", std::move(mean)}};
    if (range) one["least"] = std::move(least), one["greatest"] = std::move(greatest);
    if (holes) one["at"] = std::move(at);
    out.push_back(std::move(one));
  }
  return out;
}

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

// Warnings, resumes and the like are kept before checkpoints, of which a long run has thousands.
nlohmann::json events_json(std::vector<RunEvent> events, size_t most) {
  const size_t others = static_cast<size_t>(
      std::count_if(events.begin(), events.end(), [](const RunEvent& e) { return e.kind != "checkpoint"; }));
  const size_t checkpoints = events.size() - others;
  const size_t room = others < most ? most - others : 0;
  const size_t every = room == 0 ? SIZE_MAX : (checkpoints + room - 1) / room;
  nlohmann::json out = nlohmann::json::array();
  size_t seen_checkpoints = 0, seen_others = 0;
  for (const RunEvent& e : events) {
    if (e.kind == "checkpoint" && (every == SIZE_MAX || ++seen_checkpoints % std::max<size_t>(every, 1) != 0)) continue;
    if (e.kind != "checkpoint" && ++seen_others > most) continue;
    out.push_back({{"t", utc_iso(e.time)}, {"kind", e.kind}, {"step", e.step}, {"text", fit(e.text, 300)}});
  }
  return out;
}

std::string text_at(const nlohmann::json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}

// run.json without what is nobody's business on a page that people send around (process, host) or could be of any size.
nlohmann::json shown_part(const nlohmann::json& run) {
  nlohmann::json out = nlohmann::json::object();
  for (const char* key : {"id", "recipe", "title", "unit", "digest", "kind", "started", "finished"})
    if (run.contains(key) && run[key].is_string()) out[key] = fit(run[key].get<std::string>(), 300);
  for (const char* key : {"total_steps", "exit_code", "seconds", "loss"})
    if (run.contains(key) && run[key].is_number()) out[key] = run[key];
  if (run.contains("extra") && run["extra"].is_object())
    for (const auto& [key, value] : run["extra"].items())
      if (value.is_primitive() && out["extra"].size() < 40)
        out["extra"][fit(key, 60)] = fit(value.is_string() ? value.get<std::string>() : value.dump(), 200);
  return out;
}

// evaluation.json as `tandem eval` writes it, cut down to what the page draws: numbers under names.
nlohmann::json evaluation_json(const std::filesystem::path& run_dir) {
  const auto whole =
      nlohmann::json::parse(read_small_file(run_dir / "evaluation.json", 1 << 20).value_or(""), nullptr, false);
  nlohmann::json agents = nlohmann::json::array();
  if (!whole.is_object() || !whole.contains("agents") || !whole["agents"].is_object()) return agents;
  const auto numbers = [](const nlohmann::json& from, std::initializer_list<const char*> keys) {
    nlohmann::json out = nlohmann::json::object();
    for (const char* key : keys)
      if (from.is_object() && from.contains(key) && from[key].is_number()) out[key] = rounded(from[key].get<double>());
    return out;
  };
  for (const auto& [name, agent] : whole["agents"].items()) {
    if (!agent.is_object() || agents.size() >= 64) continue;
    nlohmann::json one = numbers(agent, {"score", "low", "high", "return", "rule", "random", "solver", "oracle"});
    if (!one.contains("score")) continue;
    one["name"] = fit(name, 60);
    if (agent.contains("ensemble")) one["ensemble"] = numbers(agent["ensemble"], {"score", "low", "high"});
    for (const char* group : {"members", "terms"}) {
      if (!agent.contains(group) || !agent[group].is_object()) continue;
      for (const auto& [key, value] : agent[group].items())
        if (one[group].size() < 16)
          one[group].push_back({fit(key, 60), value.is_number() ? nlohmann::json(rounded(value.get<double>()))
                                                                : numbers(value, {"score", "low", "high"})});
    }
    agents.push_back(std::move(one));
  }
  return agents;
}

nlohmann::json settings_json(const std::filesystem::path& run_dir, size_t most) {
  nlohmann::json settings = nlohmann::json::array();
  for (const auto& s : read_resolved_recipe(read_small_file(run_dir / "recipe.toml", 1 << 20).value_or("")))
    if (settings.size() < most) settings.push_back({fit(s.key, 80), fit(s.value, 200), fit(s.source, 80)});
  return settings;
}

nlohmann::json env_json(const std::filesystem::path& run_dir) {
  const auto env = nlohmann::json::parse(read_small_file(run_dir / "env.json", 1 << 20).value_or("{}"), nullptr, false);
  nlohmann::json out = {{"host", text_at(env, "host")}, {"os", text_at(env, "os")}};
  if (env.is_object() && env.contains("cpu")) out["cpu"] = text_at(env["cpu"], "model");
  if (env.is_object() && env.contains("versions") && env["versions"].is_object()) out["versions"] = env["versions"];
  return out;
}

nlohmann::json facts_json(const Totals& totals) {
  const auto number = [](double value) {
    return std::isfinite(value) ? nlohmann::json(rounded(value)) : nlohmann::json();
  };
  return {{"steps", totals.last_step},
          {"seconds", number(totals.seconds)},
          {"samples", number(totals.samples)},
          {"samples_per_s", totals.seconds > 0 ? number(totals.samples / totals.seconds) : nlohmann::json()},
          {"loss", number(totals.loss)},
          {"skipped", totals.skipped},
          {"first", std::isnan(totals.first_time) ? "" : utc_iso(totals.first_time)},
          {"last", std::isnan(totals.last_time) ? "" : utc_iso(totals.last_time)}};
}

nlohmann::json phases_json(const Totals& totals) {
  nlohmann::json phases = nlohmann::json::array();
  double named = 0;
  for (const auto& [name, seconds] : totals.phases) phases.push_back({name, rounded(seconds)}), named += seconds;
  if (named > 0 && totals.seconds - named > 0.001 * totals.seconds)
    phases.push_back({"other", rounded(totals.seconds - named)});
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
  nlohmann::json evaluation = evaluation_json(run_dir);
  // A folder of several runs has no steps of its own.
  const bool several = std::filesystem::exists(run_dir / "agents.json");
  if (read.records == 0 && !several) notes.push_back("metrics.jsonl holds no record yet.");
  if (read.bad_count > 0)
    notes.push_back(fmt::format("metrics.jsonl: {} unreadable lines left out, the first is line {}: {}.",
                                read.bad_count, read.bad.front().line, read.bad.front().reason));
  if (set.left_out()) notes.push_back("Only the first 40 curves are shown.");

  const nlohmann::json run = read_run_json(run_dir);
  nlohmann::json data = {{"run", shown_part(run)}, {"status", present_status(run)}, {"notes", notes}};
  if (!run.contains("id"))
    data["run"]["id"] = std::filesystem::absolute(run_dir).lexically_normal().filename().string();

  data["evaluation"] = std::move(evaluation);
  data["energy"] = report_energy(run_dir);
  data["explain"] = report_explain(run_dir);
  data["gpus"] = report_gpus(run_dir, std::min<size_t>(240, limits.most_buckets));
  data["settings"] = settings_json(run_dir, limits.most_settings);
  data["env"] = env_json(run_dir);
  data["facts"] = facts_json(totals);
  data["skips"] = totals.skips;
  data["events"] = events_json(read_events(run_dir / "events.jsonl"), limits.most_events);
  data["phases"] = phases_json(totals);

  nlohmann::json series = series_json(set);
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
