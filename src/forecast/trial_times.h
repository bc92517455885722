// forecast/trial_times.h -- the time of a run, from the steps of a trial. Pure.
//
// A run takes the sum of its steps, so a step is forecast by their mean: stalls are part of life, and a median would
// leave them out of every forecast. What is no step is kept apart: snapshots are not in the workers' own times of their
// steps at all, and what the first steps take more (caches fill, graphs are captured) happens once and belongs to the
// start. A phase that runs at every n-th step alone counts with an n-th of its time, whether the trial had the next
// such step or not.
#pragma once

#include <cstdint>
#include <vector>

#include "telemetry/trial_rule.h"

namespace tandem {

struct ReportedStep {
  double seconds = 0;  // of the step, by the clock of the worker that reported it
  double samples = 0;
  std::vector<double> rare = {};  // seconds of each phase that does not run at every step; 0: not at this one
};

struct TrialTimes {
  int64_t steps = 0;        // that were counted
  double step_seconds = 0;  // their mean
  double deviation = 0;     // of means of a tenth of them each, as a share, for the mean of all
  double samples = 0;       // of a step
  double warm_up = 0;       // what all steps took more than as many of the mean; below 0: less
};

// `beside`: seconds of a step that its record does not know, for it is written then. `every`: of each rare phase.
// Throws Error if there are too few steps.
TrialTimes times_of(const std::vector<ReportedStep>& steps, double beside, const TrialRule& rule = {},
                    const std::vector<int64_t>& every = {});

}  // namespace tandem
