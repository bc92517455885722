#include "forecast/outcomes.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "telemetry/atomic_file.h"

namespace tandem {

namespace {
constexpr size_t kLargest = 4 << 20;

double shortest() {
  const char* asked = std::getenv("TANDEM_SHORTEST_OUTCOME");
  return asked ? std::atof(asked) : kShortestOutcome;
}

}  // namespace

void keep_outcome(const std::filesystem::path& cache, const ForecastOutcome& outcome) {
  if (cache.empty() || outcome.took_seconds < shortest()) return;
  std::error_code none;
  std::filesystem::create_directories(cache, none);
  const auto file = cache / "outcomes.jsonl";
  if (std::filesystem::file_size(file, none) > kLargest && !none) std::filesystem::remove(file, none);
  const nlohmann::json line = {{"run", outcome.run},
                               {"recipe", outcome.recipe},
                               {"made", outcome.made},
                               {"workers", outcome.workers},
                               {"forecast_seconds", outcome.forecast_seconds},
                               {"took_seconds", outcome.took_seconds},
                               {"forecast_memory", outcome.forecast_memory},
                               {"memory", outcome.memory}};
  std::ofstream(file, std::ios::app) << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::vector<ForecastOutcome> last_outcomes(const std::filesystem::path& cache, const std::string& recipe, size_t most) {
  std::vector<ForecastOutcome> all;
  if (cache.empty()) return all;
  std::istringstream lines(read_small_file(cache / "outcomes.jsonl", 2 * kLargest).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object()) continue;
    try {
      ForecastOutcome one{.run = json.at("run"),
                          .recipe = json.at("recipe"),
                          .made = json.at("made"),
                          .workers = json.at("workers"),
                          .forecast_seconds = json.at("forecast_seconds"),
                          .took_seconds = json.at("took_seconds"),
                          .forecast_memory = json.at("forecast_memory"),
                          .memory = json.at("memory")};
      if (one.took_seconds < shortest()) continue;  // of a version that kept them
      if (recipe.empty() || one.recipe == recipe) all.push_back(std::move(one));
    } catch (const nlohmann::json::exception&) {
    }
  }
  if (all.size() > most) all.erase(all.begin(), all.end() - static_cast<long>(most));
  return all;
}

double outcome_error(const std::vector<ForecastOutcome>& outcomes) {
  double squares = 0;
  for (const ForecastOutcome& one : outcomes) squares += one.time_error() * one.time_error();
  return outcomes.empty() ? 0 : std::sqrt(squares / static_cast<double>(outcomes.size()));
}

}  // namespace tandem
