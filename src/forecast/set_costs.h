// forecast/set_costs.h -- what the agents of a set cost on each GPU, for the choice of a plan (jobs/set_plan.h).
//
// The best that is known of a GPU counts: trials of `plan`, else the speed of earlier runs, else its data sheet. What
// waits for launches is shared by agents in one run; arithmetic and memory are each agent's own, so a small GPU gains
// less by a shared run than a large one.
#pragma once

#include <string>
#include <vector>

#include "forecast/hardware_model.h"
#include "jobs/job_set.h"

namespace tandem {

inline constexpr const char* kGpuOfNoBook = "RTX 3060";  // what a GPU is taken for whose data sheet is not known

// One agent more in a run adds this share of its arithmetic and memory: it makes the 0.15 of a step that were measured
// on an H200 (docs/results.md).
inline constexpr double kOfOneMore = .62;
RunCost cost_of(const StepShares& shares);

// A step that was measured: arithmetic and memory as by the book, at most nine tenths of it; launches are the rest.
RunCost cost_at(double seconds_alone, const StepShares& book);
// What one more agent adds, as a share of its arithmetic and memory, by a run of several that was measured and what
// each of them takes alone. kOfOneMore where that tells nothing.
double share_of_one_more(const std::vector<RunCost>& members, double seconds_together);

// The GPU as far as the plan must know it. `memory`: what the driver says of it; without it the data sheet counts.
SetDevice set_device(const std::string& name, const GpuModel& gpu, int model, double memory_fraction,
                     const SetKnown::Memory& memory);
// Bytes that a run may take: a fraction of the GPU's memory, and no more than others leave free, less CUDA's own. In
// whole steps of 64 MB, so that equal GPUs stay equal where the driver's own bytes differ. 0: not known.
double usable_gpu_bytes(double memory_fraction, const SetKnown::Memory& memory);
const GpuModel& gpu_or_small(const std::string& name);  // by kGpuOfNoBook where it is in no book

}  // namespace tandem
