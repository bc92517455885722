#include "telemetry/report_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "telemetry/atomic_file.h"
#include "telemetry/human.h"
#include "telemetry/resolved_recipe.h"

namespace tandem {
namespace {

std::string text_at(const nlohmann::json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}

}  // namespace

double report_rounded(double value) {
  if (!std::isfinite(value) || value == 0) return value;
  return std::strtod(fmt::format("{:.5g}", value).c_str(), nullptr);
}

nlohmann::json report_series(const SeriesSet& set) {
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
      mean.push_back(report_rounded(b.mean()));
      if (range) least.push_back(report_rounded(b.least)), greatest.push_back(report_rounded(b.greatest));
      if (holes) at.push_back(i);
    }
    nlohmann::json one = {{"name", series.name}, {"mean", std::move(mean)}};
    if (range) one["least"] = std::move(least), one["greatest"] = std::move(greatest);
    if (holes) one["at"] = std::move(at);
    out.push_back(std::move(one));
  }
  return out;
}

// Warnings, resumes and the like are kept before checkpoints, of which a long run has thousands.
nlohmann::json report_events(std::vector<RunEvent> events, size_t most) {
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

// run.json without what is nobody's business on a page that people send around (process, host) or could be of any size.
nlohmann::json report_run_part(const nlohmann::json& run) {
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
nlohmann::json report_evaluation(const std::filesystem::path& run_dir) {
  const auto whole =
      nlohmann::json::parse(read_small_file(run_dir / "evaluation.json", 1 << 20).value_or(""), nullptr, false);
  nlohmann::json agents = nlohmann::json::array();
  if (!whole.is_object() || !whole.contains("agents") || !whole["agents"].is_object()) return agents;
  const auto numbers = [](const nlohmann::json& from, std::initializer_list<const char*> keys) {
    nlohmann::json out = nlohmann::json::object();
    for (const char* key : keys)
      if (from.is_object() && from.contains(key) && from[key].is_number())
        out[key] = report_rounded(from[key].get<double>());
    return out;
  };
  for (const auto& [name, agent] : whole["agents"].items()) {
    if (!agent.is_object() || agents.size() >= 64) continue;
    nlohmann::json one = numbers(agent, {"score", "low", "high", "return", "return_low", "return_high", "length",
                                         "rule", "random", "solver", "oracle", "episodes"});
    if (!one.contains("score") && !one.contains("return_low")) continue;
    if (agent.contains("lines") && agent["lines"].is_object() && agent["lines"].contains("random"))
      one["random_return"] = numbers(agent["lines"]["random"], {"return"}).value("return", nlohmann::json());
    one["name"] = fit(name, 60);
    if (agent.contains("ensemble")) one["ensemble"] = numbers(agent["ensemble"], {"score", "low", "high"});
    for (const char* group : {"members", "terms"}) {
      if (!agent.contains(group) || !agent[group].is_object()) continue;
      for (const auto& [key, value] : agent[group].items())
        if (one[group].size() < 16)
          one[group].push_back({fit(key, 60), value.is_number() ? nlohmann::json(report_rounded(value.get<double>()))
                                                                : numbers(value, {"score", "low", "high"})});
    }
    agents.push_back(std::move(one));
  }
  return agents;
}

// Of a trader's evaluation.json: the value of 100 over the days of its test for each strategy, and its figures.
nlohmann::json report_equity(const std::filesystem::path& run_dir) {
  constexpr size_t kMostDates = 2000, kMostStrategies = 16;
  const auto whole =
      nlohmann::json::parse(read_small_file(run_dir / "evaluation.json", 1 << 22).value_or(""), nullptr, false);
  const auto list = [](const nlohmann::json& from, const char* key) {
    const bool there = from.is_object() && from.contains(key) && from[key].is_array();
    return there ? from[key] : nlohmann::json::array();
  };
  const nlohmann::json equity = whole.is_object() ? whole.value("equity", nlohmann::json()) : nlohmann::json();
  nlohmann::json out = {{"dates", nlohmann::json::array()}, {"curves", nlohmann::json::array()}};
  for (const auto& date : list(equity, "dates"))
    if (date.is_number_integer() && out["dates"].size() < kMostDates) out["dates"].push_back(date);
  if (out["dates"].size() < 2) return nullptr;
  const auto strategy = [&](const std::string& name) -> nlohmann::json {
    if (name == "agent") return whole.value("agent", nlohmann::json());
    for (const auto& one : list(whole, "baselines"))
      if (one.is_object() && one.contains("name") && one["name"] == name) return one;
    return nullptr;
  };
  for (const auto& curve : list(equity, "curves")) {
    nlohmann::json values = nlohmann::json::array();
    for (const auto& value : list(curve, "values"))
      if (value.is_number()) values.push_back(report_rounded(value.get<double>()));
    const bool named = curve.is_object() && curve.contains("name") && curve["name"].is_string();
    if (!named || values.size() != out["dates"].size() || out["curves"].size() >= kMostStrategies) continue;
    const std::string name = curve["name"];
    nlohmann::json one = {{"name", fit(name, 60)}, {"values", std::move(values)}};
    const nlohmann::json figures = strategy(name);
    for (const char* key : {"total_return", "sharpe", "sharpe_low", "sharpe_high", "cvar95", "turnover"})
      if (figures.is_object() && figures.contains(key) && figures[key].is_number())
        one[key] = report_rounded(figures[key].get<double>());
    if (figures.is_object() && figures.contains("drawdown") && figures["drawdown"].is_object() &&
        figures["drawdown"].contains("depth") && figures["drawdown"]["depth"].is_number())
      one["drawdown"] = report_rounded(figures["drawdown"]["depth"].get<double>());
    out["curves"].push_back(std::move(one));
  }
  for (const auto& line : list(whole, "words"))
    if (line.is_string() && out["words"].size() < 20) out["words"].push_back(fit(line.get<std::string>(), 400));
  return out;
}

nlohmann::json report_settings(const std::filesystem::path& run_dir, size_t most) {
  nlohmann::json settings = nlohmann::json::array();
  for (const auto& s : read_resolved_recipe(read_small_file(run_dir / "recipe.toml", 1 << 20).value_or("")))
    if (settings.size() < most) settings.push_back({fit(s.key, 80), fit(s.value, 200), fit(s.source, 80)});
  return settings;
}

nlohmann::json report_env(const std::filesystem::path& run_dir) {
  const auto env = nlohmann::json::parse(read_small_file(run_dir / "env.json", 1 << 20).value_or("{}"), nullptr, false);
  nlohmann::json out = {{"host", text_at(env, "host")}, {"os", text_at(env, "os")}};
  if (env.is_object() && env.contains("cpu")) out["cpu"] = text_at(env["cpu"], "model");
  if (env.is_object() && env.contains("versions") && env["versions"].is_object()) out["versions"] = env["versions"];
  return out;
}

nlohmann::json report_evaluation_facts(const std::filesystem::path& run_dir) {
  const auto whole =
      nlohmann::json::parse(read_small_file(run_dir / "evaluation.json", 1 << 20).value_or(""), nullptr, false);
  nlohmann::json out = nlohmann::json::object();
  for (const char* key : {"episodes", "seed"})
    if (whole.is_object() && whole.contains(key) && whole[key].is_number_integer()) out[key] = whole[key];
  return out;
}

}  // namespace tandem
