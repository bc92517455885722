// engine/schedule.h -- the learning rate as a function of the number of updates made.
#pragma once

#include <cstdint>

#include "config/run_settings.h"

namespace tandem {

// What learning_rate is multiplied by for the global batch: 1, batch / base (linear) or its square root.
double batch_factor(const ScheduleSettings& schedule, int64_t global_batch);

// In [min_factor, 1]: a linear warm-up from 1 / warmup_steps, then constant, one cosine, or cosines with warm restarts,
// each cycle restart_factor times as long as the one before.
double schedule_factor(const ScheduleSettings& schedule, int64_t update);

}  // namespace tandem
