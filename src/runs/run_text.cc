// runs/run_text.cc -- rows of the index for scripts and for people (the functions at the end of runs/index.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/printable.h"
#include "runs/index.h"
#include "telemetry/human.h"
#include "telemetry/learning_figures.h"

namespace tandem {
namespace {

nlohmann::json number_or_null(double value) { return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(); }

using TableRow = std::vector<std::string>;

// Columns as wide as their longest cell; the last ones are cut where the line would pass `width`.
std::string table(std::vector<TableRow> rows, int width) {
  std::vector<int> widths;
  for (auto& row : rows)
    for (std::string& cell : row) cell = printable(cell);  // ids and settings are of files, perhaps of strangers
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      if (widths.size() <= i) widths.push_back(0);
      widths[i] = std::max(widths[i], display_width(row[i]));
    }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(static_cast<size_t>(widths[i] - display_width(row[i]) + 2), ' ');
    }
    line = fit(line, width);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string value_text(double value) {
  if (!std::isfinite(value)) return "-";
  return fmt::format("{:.6g}", value);
}

std::string steps_text(const RunRow& row) {
  return row.total_steps > 0 ? fmt::format("{}/{}", row.step, row.total_steps) : fmt::format("{}", row.step);
}

// Of a set of jobs too, whose metrics are "analysis/score".
LearningFigures figures_of(const RunRow& row) {
  LearningFigures figures;
  for (const auto& [metric, value] : row.metrics) {
    std::string name = metric;
    std::replace(name.begin(), name.end(), '/', '.');
    figures.put(name, value);
  }
  return figures;
}

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

}  // namespace

std::string RunRow::short_id() const {
  const std::string folder = dir.filename().string();
  return folder.empty() || folder == id ? id.substr(id.rfind('-') + 1) : folder;
}

nlohmann::json to_json(const RunRow& row) {
  nlohmann::json metrics = nlohmann::json::object();
  for (const auto& [name, value] : row.metrics)
    if (std::isfinite(value)) metrics[name] = value;
  return {{"id", row.id},
          {"recipe", row.recipe},
          {"status", row.status},
          {"started", row.started},
          {"dir", row.dir.string()},
          {"step", row.step},
          {"total_steps", row.total_steps},
          {"seconds", row.seconds},
          {"loss", number_or_null(row.loss)},
          {"digest", row.digest},
          {"kind", row.kind},
          {"exit_code", row.exit_code},
          {"metrics", metrics},
          {"settings", row.settings}};
}

nlohmann::json to_json(const std::vector<RunRow>& rows) {
  nlohmann::json out = nlohmann::json::array();
  for (const RunRow& row : rows) out.push_back(to_json(row));
  return out;
}

nlohmann::json to_json(const RunComparison& comparison) {
  const auto value = [](const auto& maybe) { return maybe ? nlohmann::json(*maybe) : nlohmann::json(); };
  nlohmann::json out = {{"a", comparison.a.id},
                        {"b", comparison.b.id},
                        {"same_digest", value(comparison.same_digest)},
                        {"same_kind", comparison.same_kind},
                        {"digest", {{"a", comparison.a.digest}, {"b", comparison.b.digest}}},
                        {"settings", nlohmann::json::object()},
                        {"metrics", nlohmann::json::object()}};
  for (const auto& s : comparison.settings) out["settings"][s.key] = {{"a", value(s.a)}, {"b", value(s.b)}};
  for (const auto& m : comparison.metrics) out["metrics"][m.name] = {{"a", value(m.a)}, {"b", value(m.b)}};
  return out;
}

std::string list_text(const std::vector<RunRow>& rows, int width) {
  if (rows.empty()) return "no runs\n";
  std::vector<std::pair<std::string, std::string>> figures;  // return, score
  bool returns = false, scores = false;
  for (const RunRow& row : rows) {
    const LearningFigures found = figures_of(row);
    figures.emplace_back(found.returns_text(), found.scores_text());
    returns = returns || !figures.back().first.empty();
    scores = scores || !figures.back().second.empty();
  }
  std::vector<TableRow> lines = {{"ID", "RECIPE", "STATUS", "STEP"}};
  if (returns) lines.front().push_back("RETURN");
  if (scores) lines.front().push_back("SCORE");
  for (const char* name : {"LOSS", "TIME", "STARTED (UTC)", "DIGEST"}) lines.front().push_back(name);
  for (size_t i = 0; i < rows.size(); ++i) {
    const RunRow& row = rows[i];
    std::string started = row.started.substr(0, 16);
    std::replace(started.begin(), started.end(), 'T', ' ');
    TableRow line = {fit(row.short_id(), 24), fit(row.recipe, 24), row.status, steps_text(row)};
    if (returns) line.push_back(or_dash(figures[i].first));
    if (scores) line.push_back(or_dash(figures[i].second));
    for (const std::string& cell :
         {loss_text(row.loss), duration_text(row.seconds), or_dash(started), or_dash(row.digest.substr(0, 16))})
      line.push_back(cell);
    lines.push_back(std::move(line));
  }
  return table(lines, width);
}

std::string show_text(const RunRow& row) {
  std::vector<TableRow> lines = {
      {"run", row.id},           {"recipe", row.recipe},        {"status", row.status},
      {"step", steps_text(row)}, {"loss", loss_text(row.loss)}, {"time", duration_text(row.seconds)},
      {"started", row.started},  {"folder", row.dir.string()}};
  const LearningFigures figures = figures_of(row);
  if (const std::string scores = figures.scores_text(); !scores.empty())
    lines.insert(lines.begin() + 4, {"score", scores});
  if (const std::string returns = figures.returns_text(); !returns.empty())
    lines.insert(lines.begin() + 4, {"return", returns});
  if (const auto energy = row.metrics.find("energy_kwh"); energy != row.metrics.end()) {
    std::string text = fmt::format("{:.4g} kWh", energy->second);
    if (row.metrics.contains("mean_power_w"))
      text += fmt::format(", {:.0f} W on average", row.metrics.at("mean_power_w"));
    if (row.metrics.contains("energy_cost"))
      text += fmt::format(", {:.4g} {}", row.metrics.at("energy_cost"),
                          row.settings.contains("currency") ? row.settings.at("currency") : "");
    lines.push_back({"energy", text});
  }
  if (!row.digest.empty()) lines.push_back({"digest", row.digest});
  if (!row.kind.empty()) lines.push_back({"kind", row.kind});
  if (row.exit_code != 0) lines.push_back({"exit code", fmt::format("{}", row.exit_code)});
  std::string out = table(lines, 1000);
  std::vector<TableRow> metrics, settings;
  for (const auto& [name, value] : row.metrics) metrics.push_back({"  " + name, value_text(value)});
  for (const auto& [key, value] : row.settings) settings.push_back({"  " + key, value});
  if (!metrics.empty()) out += "metrics\n" + table(metrics, 1000);
  if (!settings.empty()) out += "settings\n" + table(settings, 1000);
  return out;
}

std::string compare_text(const RunComparison& comparison, int width) {
  const auto setting = [](const std::optional<std::string>& value) { return value ? *value : std::string("-"); };
  const auto metric = [](const std::optional<double>& value) { return value ? value_text(*value) : std::string("-"); };
  std::vector<TableRow> lines = {{"", comparison.a.id, comparison.b.id},
                                 {"status", comparison.a.status, comparison.b.status},
                                 {"step", steps_text(comparison.a), steps_text(comparison.b)},
                                 {"time", duration_text(comparison.a.seconds), duration_text(comparison.b.seconds)}};
  for (const auto& m : comparison.metrics) lines.push_back({m.name, metric(m.a), metric(m.b)});
  for (const auto& s : comparison.settings) lines.push_back({s.key, setting(s.a), setting(s.b)});
  std::string out = table(lines, width);
  out += comparison.settings.empty() ? "settings  equal\n"
                                     : fmt::format("settings  {} differ\n", comparison.settings.size());
  if (!comparison.same_digest)
    out += "weights   not comparable: a run has no digest\n";
  else
    out += fmt::format("weights   {}{}\n", *comparison.same_digest ? "equal, bit for bit" : "differ",
                       comparison.same_kind ? "" : " (of unequal kinds)");
  return out;
}

}  // namespace tandem
