#include "telemetry/learning_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "telemetry/human.h"

namespace tandem {
namespace {

struct Spread {
  double least = kAbsent, most = kAbsent;
  int count = 0;
  void add(double value) {
    if (!std::isfinite(value)) return;
    least = count > 0 ? std::min(least, value) : value;
    most = count > 0 ? std::max(most, value) : value;
    ++count;
  }
};

Spread spread_of(const std::vector<LearningFigures::Agent>& agents, double LearningFigures::Agent::*figure) {
  Spread spread;
  for (const LearningFigures::Agent& agent : agents) spread.add(agent.*figure);
  return spread;
}

std::string column(const Spread& spread, std::string (*text)(double)) {
  if (spread.count == 0) return "";
  return spread.count == 1 ? text(spread.most) : fmt::format("{}-{}", text(spread.least), text(spread.most));
}

std::string words(const Spread& spread, const char* name, std::string (*text)(double)) {
  if (spread.count == 0) return "";
  if (spread.count == 1) return fmt::format("{} {}", name, text(spread.most));
  return fmt::format("{}s {} to {}", name, text(spread.least), text(spread.most));
}

}  // namespace

bool parse_figure_name(std::string_view metric, FigureName& name) {
  const size_t dot = metric.rfind('.');
  const std::string_view what = dot == metric.npos ? metric : metric.substr(dot + 1);
  name.is_score = what == "score";
  if (!name.is_score && what != "average_return") return false;
  name.agent = dot == metric.npos ? std::string_view() : metric.substr(0, dot);
  return true;
}

void LearningFigures::put(std::string_view metric, double value) {
  FigureName name;
  if (!std::isfinite(value) || !parse_figure_name(metric, name)) return;
  auto at = std::find_if(agents.begin(), agents.end(), [&](const Agent& agent) { return agent.name == name.agent; });
  if (at == agents.end()) at = agents.insert(at, Agent{.name = std::string(name.agent)});
  (name.is_score ? at->score : at->average_return) = value;
}

bool is_validation_metric(std::string_view metric) { return metric.find('/') != metric.npos; }

void LearningFigures::take(const NamedValues& metrics) {
  for (const auto& [name, value] : metrics) {
    if (!is_validation_metric(name)) continue;
    validated = name;
    validation = value;
    break;
  }
  for (const auto& [name, value] : metrics) put(name, value);
}

std::string LearningFigures::text() const {
  const std::string score = words(spread_of(agents, &Agent::score), "score", score_text);
  if (agents.size() > 1 && !score.empty()) return score;  // returns of several problems have no common scale
  const std::string average = words(spread_of(agents, &Agent::average_return), "return", return_text);
  std::string text = average + (average.empty() || score.empty() ? "" : "  ") + score;
  if (!validated.empty()) text += fmt::format("{}{} {:.4g}", text.empty() ? "" : "  ", validated, validation);
  return text;
}

std::string LearningFigures::returns_text() const {
  return column(spread_of(agents, &Agent::average_return), return_text);
}

std::string LearningFigures::scores_text() const { return column(spread_of(agents, &Agent::score), score_text); }

std::string return_text(double value) {
  if (!std::isfinite(value)) return "-";
  return std::abs(value) < 1e4 ? fmt::format("{:.4g}", value) : short_number(value);
}

std::string score_text(double value) { return std::isfinite(value) ? fmt::format("{:.2f}", value) : "-"; }

}  // namespace tandem
