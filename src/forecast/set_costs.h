// forecast/set_costs.h -- what the agents of a set cost on each GPU, for the choice of a plan (jobs/set_plan.h).
//
// The best that is known of a GPU counts: trials of `plan`, else the speed of earlier runs, else its data sheet. What
// waits for launches is shared by agents in one run; arithmetic and memory are each agent's own, so a small GPU gains
// less by a shared run than a large one.
#pragma once

#include <string>

#include "forecast/hardware_model.h"
#include "jobs/set_plan.h"

namespace tandem {

inline constexpr const char* kGpuOfNoBook = "RTX 3060";  // what a GPU is taken for whose data sheet is not known

// One agent more in a run adds this share of its arithmetic and memory: it makes the 0.15 of a step that were measured
// on an H200 (docs/results.md).
inline constexpr double kOfOneMore = .62;
RunCost cost_of(const StepShares& shares);

// A step that was measured: arithmetic and memory as by the book, at most nine tenths of it; launches are the rest.
RunCost cost_at(double seconds_alone, const StepShares& book);
// With a run of several agents that was measured too, what each further one adds is known.
RunCost with_batch(RunCost cost, int agents, double seconds_together);

// The GPU as far as the plan must know it.
SetDevice set_device(const std::string& name, const GpuModel& gpu, int model, double memory_fraction);
const GpuModel& gpu_or_small(const std::string& name);  // by kGpuOfNoBook where it is in no book

}  // namespace tandem
