// forecast/hardware_model.h -- what was measured here, as it would be on GPUs that are not here: scaled by what their
// makers say of them (hardware/gpu_models.h).
//
// A step has a share that waits for arithmetic, one that waits for memory, and one that waits for launches and latency.
// The first two follow peak and bandwidth of a GPU, the third stays as it is. Where no GPU could be measured here,
// the third comes from what was measured on an H200 (docs/results.md), or is a guess; the error says which.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "forecast/calibration.h"
#include "hardware/gpu_models.h"

namespace tandem {

inline constexpr double kGpuStartSeconds = 3;   // of a run on a GPU until its first step: CUDA's libraries are large
inline constexpr double kContextBytes = 600e6;  // of CUDA and its libraries, on each GPU

// Of a step on some GPU, in seconds.
struct StepShares {
  double arithmetic = 0, memory = 0, latency = 0;
  double seconds() const { return arithmetic + memory + latency; }
};

struct Scaled {
  Calibration calibration;  // trials on one and on two of each of the GPUs, none of which was ever made
  std::string from;         // "NVIDIA H200 measured here", ...
  std::string between;      // what the sums of several GPUs are assumed to go over
  double error = 0;         // of the time, as a share; above 1: by a factor of 1 + error
  StepShares shares;        // of the first GPU at the first batch
  std::map<std::string, StepShares> by_gpu;  // of each at the first batch
};

// Peak of a GPU in this precision, in floating-point operations a second; fp32's where the maker says nothing.
double peak_flops(const GpuModel& gpu, const std::string& precision);
bool states_peak(const GpuModel& gpu, const std::string& precision);

// Moves shares from one GPU to another, and from one precision to another.
StepShares moved(const StepShares& shares, const GpuModel& from, const std::string& from_precision, const GpuModel& to,
                 const std::string& precision);

// A GPU that nobody measured: by the data sheets, and by what an H200 was measured to wait for launches (a guess for
// recipes that were not measured there). `samples`: of a step with this batch.
StepShares shares_by_book(const GpuModel& gpu, const std::string& recipe, const JobShape& job, int64_t batch,
                          double samples, const std::string& precision);
// Of a sum over two such GPUs, as TANDEM_PLANE has it: without its bytes, and for each number in it.
double sum_latency_seconds(const GpuModel& gpu);
double sum_float_seconds(const GpuModel& gpu);
std::string sums_go_over(const GpuModel& gpu);  // "RTX 3070: PCIe, 14 GB/s each way; ..."

// `here` holds trials of `precision` (of fp32 if it has none) on one device. Throws ConfigError if it has none at all.
Scaled scale_to(const std::vector<const GpuModel*>& gpus, const Calibration& here, const JobShape& job,
                const std::vector<int64_t>& batches, const std::string& precision);

// Several agents side by side in one run, from the trials of one that is alone in its own: a step takes `slower` times
// as long, `job` is the shape of all of them, and what a step holds beside it is there for each.
Calibration side_by_side(Calibration alone, const JobShape& job, int agents, double slower);
// The shape of such a run: each has its own weights, optimizer and buffer.
JobShape sum_of(const std::vector<JobShape>& jobs);

}  // namespace tandem
