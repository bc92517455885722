// telemetry/learning_figures.h -- the numbers that people look at first, found among a step's metrics: return and score
// ("average_return", "score", of one agent among several "analysis.score"), and the metric of a validation set that
// decides which step is the best ("validation/accuracy": the first of a record).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "telemetry/step_record.h"

namespace tandem {

// "analysis.score" is the score of "analysis", "score" that of the only agent (name ""). False: neither of the two.
struct FigureName {
  std::string_view agent;
  bool is_score = false;
};
bool parse_figure_name(std::string_view metric, FigureName& name);

// "validation/accuracy", not "accuracy": found over a validation set.
bool is_validation_metric(std::string_view metric);

struct LearningFigures {
  struct Agent {
    std::string name;  // empty: the run has one agent
    double average_return = kAbsent, score = kAbsent;
  };
  std::vector<Agent> agents;  // empty: the recipe reports neither
  std::string validated;      // the metric's name; empty: nothing was validated yet
  double validation = kAbsent;

  // The newest value wins; one that is not finite changes nothing. Some tens of nanoseconds.
  void take(const NamedValues& metrics);
  void put(std::string_view metric, double value);
  const Agent* only() const { return agents.size() == 1 ? &agents.front() : nullptr; }

  // "return 187.4  score 0.73"; of several agents "scores 0.31 to 0.72"; "validation/accuracy 0.931". Empty where there
  // is none of them.
  std::string text() const;
  // For a column: "187.4", "0.31-0.72" of several; empty where there is none.
  std::string returns_text() const;
  std::string scores_text() const;
};

std::string return_text(double value);  // "187.4", "1.25k", "-" if absent
std::string score_text(double value);   // "0.73", "-" if absent

}  // namespace tandem
