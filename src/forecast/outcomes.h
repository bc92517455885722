// forecast/outcomes.h -- how good earlier forecasts were: one line for each run that had one.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tandem {

struct ForecastOutcome {
  std::string run, recipe, made;
  int workers = 0;
  double forecast_seconds = 0, took_seconds = 0;
  double forecast_memory = 0, memory = 0;  // bytes; 0: not known
  double time_error() const { return took_seconds > 0 ? forecast_seconds / took_seconds - 1 : 0; }
  double memory_error() const { return memory > 0 ? forecast_memory / memory - 1 : 0; }
};

// Of a shorter run the start is the most, and says nothing of a step's forecast: it is neither kept nor read back.
inline constexpr double kShortestOutcome = 5;  // seconds; TANDEM_SHORTEST_OUTCOME: others, for tests

// Appended to <cache>/outcomes.jsonl; a loss of it costs nothing.
void keep_outcome(const std::filesystem::path& cache, const ForecastOutcome& outcome);
// The newest of a recipe, newest last; of all recipes where it is empty. Lines that make no sense are left out.
std::vector<ForecastOutcome> last_outcomes(const std::filesystem::path& cache, const std::string& recipe, size_t most);
// Root of the mean square of their errors in time; 0 if there is none.
double outcome_error(const std::vector<ForecastOutcome>& outcomes);

}  // namespace tandem
