#include "forecast/trial_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/errors.h"

namespace tandem {
namespace {

constexpr size_t kPieces = 10;
constexpr size_t kSkipped = 5;  // a fifth of them: caches fill, graphs are captured, shards find their workers
constexpr size_t kFirstCompared = 16, kCompared = 4096;  // engine/phase_run.h: compares_again()

// The step with this number, from 0, ran twice.
bool is_compared(size_t step) { return step >= kFirstCompared && (std::has_single_bit(step) || step % kCompared == 0); }

double sum(const std::vector<double>& values, size_t from, size_t to) {
  double seconds = 0;
  for (size_t i = from; i < to; ++i) seconds += values[i];
  return seconds;
}

// What a step pays of the phases that run now and then: of each an n-th of its mean. Its first run warms up, so it
// counts only where there is no other.
double share_of_rare(const std::vector<ReportedStep>& steps, const std::vector<int64_t>& every) {
  double share = 0;
  for (size_t phase = 0; phase < every.size(); ++phase) {
    std::vector<double> runs;
    for (const ReportedStep& step : steps)
      if (step.rare[phase] > 0) runs.push_back(step.rare[phase]);
    const size_t first = runs.size() > 1 ? 1 : 0;
    if (!runs.empty())
      share += sum(runs, first, runs.size()) / static_cast<double>((runs.size() - first) * every[phase]);
  }
  return share;
}

}  // namespace

TrialTimes times_of(const std::vector<ReportedStep>& steps, double beside, const TrialRule& rule,
                    const std::vector<int64_t>& every) {
  const size_t first = std::max(steps.size() / kSkipped, static_cast<size_t>(rule.warm_up));
  std::vector<double> common;  // of the steps that count, without their rare phases
  TrialTimes times;
  for (size_t i = first; i < steps.size(); ++i) {
    if (rule.compares && is_compared(i)) continue;
    common.push_back(steps[i].seconds - sum(steps[i].rare, 0, steps[i].rare.size()));
    times.samples += steps[i].samples;
  }
  if (static_cast<int64_t>(common.size()) < TrialRule{}.least)
    throw Error(ExitCode::kFailed, "nothing was measured",
                fmt::format("only {} steps were done in the time given", steps.size()),
                "give it more time: without --quick, with a larger --budget, or with a smaller batch");
  const auto count = static_cast<double>(common.size());
  times.steps = static_cast<int64_t>(common.size());
  times.samples /= count;
  times.step_seconds = sum(common, 0, common.size()) / count + share_of_rare(steps, every) + beside;
  for (const ReportedStep& step : steps) times.warm_up += step.seconds + beside - times.step_seconds;

  const size_t pieces = std::min(kPieces, common.size());
  double squares = 0;
  for (size_t p = 0; p < pieces; ++p) {
    const size_t from = p * common.size() / pieces, to = (p + 1) * common.size() / pieces;
    const double mean = sum(common, from, to) / static_cast<double>(to - from);
    const double off = times.step_seconds > 0 ? (mean - sum(common, 0, common.size()) / count) / times.step_seconds : 0;
    squares += off * off;
  }
  times.deviation = std::sqrt(squares) / static_cast<double>(pieces);
  return times;
}

}  // namespace tandem
