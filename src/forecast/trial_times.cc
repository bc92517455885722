#include "forecast/trial_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/errors.h"

namespace tandem {
namespace {

constexpr size_t kFewest = 2, kPieces = 10;
constexpr size_t kSkipped = 5;  // a fifth of them: caches fill, graphs are captured, shards find their workers

double sum(const std::vector<ReportedStep>& steps, size_t from, size_t to) {
  double seconds = 0;
  for (size_t i = from; i < to; ++i) seconds += steps[i].seconds;
  return seconds;
}

}  // namespace

TrialTimes times_of(const std::vector<ReportedStep>& steps, double beside) {
  const size_t first = std::max<size_t>(steps.size() / kSkipped, 1);
  if (steps.size() < first + kFewest)
    throw Error(ExitCode::kFailed, "nothing was measured",
                fmt::format("only {} steps were done in the time given", steps.size()),
                "give it more time: without --quick, with a larger --budget, or with a smaller batch");
  const size_t count = steps.size() - first;
  TrialTimes times;
  times.steps = static_cast<int64_t>(count);
  times.step_seconds = sum(steps, first, steps.size()) / static_cast<double>(count) + beside;
  for (size_t i = first; i < steps.size(); ++i) times.samples += steps[i].samples / static_cast<double>(count);
  times.warm_up = sum(steps, 0, first) + static_cast<double>(first) * (beside - times.step_seconds);

  const size_t pieces = std::min(kPieces, count);
  double squares = 0;
  for (size_t p = 0; p < pieces; ++p) {
    const size_t from = first + p * count / pieces, to = first + (p + 1) * count / pieces;
    const double mean = sum(steps, from, to) / static_cast<double>(to - from) + beside;
    const double off = times.step_seconds > 0 ? mean / times.step_seconds - 1 : 0;
    squares += off * off;
  }
  times.deviation = std::sqrt(squares) / static_cast<double>(pieces);
  return times;
}

}  // namespace tandem
