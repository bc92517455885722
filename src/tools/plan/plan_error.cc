// tools/plan/plan_error.cc -- the column `error` of `tandem plan`, and where it comes from.
#include <fmt/format.h>

#include <algorithm>

#include "tools/plan/plan.h"

namespace tandem {

std::string error_text(double error) {
  return error > 1 ? fmt::format("x{:.0f}", 1 + error) : fmt::format("+-{:.0f} %", 100 * error);
}

std::string error_line(const PlanReport& report) {
  double most = 0;
  for (const PlanRow& row : report.rows) most = std::max(most, row.error);
  for (const SetRow& row : report.set_rows) most = std::max(most, row.error);
  if (most <= 0) return "";
  const double load = load_error(report.calibration), past = outcome_error(report.outcomes);
  constexpr double kSame = .999;
  std::string why;
  if (load > 0 && load >= kSame * most)
    why = fmt::format("others kept {:.1f} of {} cores busy while it was measured; on a quiet machine: --calibrate",
                      report.calibration.load, report.calibration.cores);
  else if (!report.here)
    why = report.scaled_from.ends_with("measured here")
              ? "measured here, moved to other GPUs by their data sheets"
              : "by data sheets; with a GPU to measure here it would be +-35 %";
  else if (past > 0 && past >= kSame * most)
    why = "the last forecasts were off by so much";
  else
    why = "the trials varied by so much, and more where no trial was made";
  return fmt::format("error     {}{}: {}\n", error_text(most),
                     most > 1 ? fmt::format(" (up to {:.0f} times as long, or as short)", 1 + most) : "", why);
}

}  // namespace tandem
