#include "forecast/hardware_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/errors.h"
#include "config/gpu_memory.h"
#include "forecast/memory_model.h"
#include "forecast/step_model.h"
#include "reduce/plane.h"

namespace tandem {
namespace {

// What training of small nets reaches of a GPU's peaks; only the split between the shares depends on it.
constexpr double kOfPeak = .35, kOfBandwidth = .6;
constexpr double kOperationsPerWeight = 10;  // a sample: forward, backward, and a second net's forward
constexpr double kPassesOverState = 4;       // of weights, gradient and optimizer in an update
// A combine over two GPUs: launches, latency, and the update that is no longer part of the phase's own graph.
constexpr double kSumLatency = 3e-4;
// By kernels in the step's own graph, through the other GPU's memory and through pinned host memory: a line through
// what a probe of such a kernel took with 1.5 and 69 MB, two ranks on one H200 (21 and 675 us; 259 us and 8.1 ms), at 0
// MB. Its speed says nothing of links between GPUs; no run has shown it.
constexpr double kPeerSumLatency = 7e-6, kPinnedSumLatency = 85e-6;
constexpr double kOfNvlink = .7, kOfPcie = .45;

// Measured on an H200 (docs/results.md): a step as a run.
struct Reference {
  const char *recipe, *precision;
  int64_t batch;
  double seconds;
};
constexpr Reference kReferences[] = {{"tiny", "fp32", 192, 554e-6}, {"web-agent", "fp32", 256, 150e-6}};
constexpr double kGuessedLatency = 600e-6;  // of a step of another recipe

// In this precision, else in fp32.
const Reference* reference_of(const std::string& recipe, const std::string& precision) {
  const Reference* best = nullptr;
  for (const Reference& one : kReferences)
    if (recipe == one.recipe && (one.precision == precision || (!best && one.precision == std::string_view("fp32"))))
      best = &one;
  return best;
}

double operations(const JobShape& job, double samples) {
  return kOperationsPerWeight * job.weights_bytes / 4 * samples;
}

// By the book alone, without what waits for launches.
StepShares by_book(const GpuModel& gpu, const JobShape& job, double samples, const std::string& precision) {
  return {.arithmetic = operations(job, samples) / (kOfPeak * peak_flops(gpu, precision)),
          .memory = kPassesOverState * (job.replicated_bytes() + 4 * job.combine_floats) /
                    (kOfBandwidth * gpu.bandwidth_gb_per_s * 1e9),
          .latency = 0};
}

std::optional<double> stated_peak(const GpuModel& gpu, const std::string& precision) {
  if (precision == "bf16") return gpu.bf16_tflops;
  if (precision == "fp16") return gpu.fp16_tflops;
  return precision == "tf32" ? gpu.tf32_tflops : std::optional<double>(gpu.fp32_tflops);
}

// On the H200 that everything is compared with, where no GPU was measured here.
StepShares on_reference(const GpuModel& reference, const Reference* known, const JobShape& job, int64_t batch,
                        double samples, const std::string& basis) {
  StepShares shares = by_book(reference, job, samples, basis);
  shares.latency = kGuessedLatency;
  if (known) {
    const double then = samples * static_cast<double>(known->batch) / static_cast<double>(std::max<int64_t>(1, batch));
    shares.latency = std::max(.1 * known->seconds, known->seconds - by_book(reference, job, then, basis).seconds());
  }
  return shares;
}

double link_bytes_per_second(const GpuModel& gpu) {
  if (gpu.nvlink_gb_per_s) return kOfNvlink * *gpu.nvlink_gb_per_s / 2 * 1e9;
  return kOfPcie * gpu.pcie_gb_per_s * 1e9;
}

// A trial on one device, on a GPU that the book knows if there is one.
const Trial* best_trial(const Calibration& here, const std::string& precision) {
  const Trial* best = nullptr;
  for (const Trial& trial : here.trials) {
    if (trial.devices.size() != 1 || trial.precision != precision) continue;
    if (!best || (find_gpu_model(trial.devices[0].model) && !find_gpu_model(best->devices[0].model))) best = &trial;
  }
  return best;
}

// The step of two devices: what the model of one device says of half the shards, and the combine.
void set_pair_steps(Calibration& calibration, const std::string& precision) {
  Calibration alone = calibration;
  std::erase_if(alone.trials, [](const Trial& trial) { return trial.devices.size() > 1; });
  const StepModel model(alone, precision);
  for (Trial& trial : calibration.trials) {
    if (trial.devices.size() < 2) continue;
    std::vector<ForecastDevice> pair;
    for (const TrialDevice& device : trial.devices) pair.push_back({device.model, 1, -1});
    const StepForecast forecast = model.step(trial.batch, pair);
    trial.step_seconds = forecast.compute + forecast.fixed + trial.combine_seconds;
  }
}

}  // namespace

double peak_flops(const GpuModel& gpu, const std::string& precision) {
  return stated_peak(gpu, precision).value_or(gpu.fp32_tflops) * 1e12;
}

bool states_peak(const GpuModel& gpu, const std::string& precision) { return stated_peak(gpu, precision).has_value(); }

StepShares moved(const StepShares& shares, const GpuModel& from, const std::string& from_precision, const GpuModel& to,
                 const std::string& precision) {
  return {.arithmetic = shares.arithmetic * peak_flops(from, from_precision) / peak_flops(to, precision),
          .memory = shares.memory * from.bandwidth_gb_per_s / to.bandwidth_gb_per_s,
          .latency = shares.latency};
}

StepShares shares_by_book(const GpuModel& gpu, const std::string& recipe, const JobShape& job, int64_t batch,
                          double samples, const std::string& precision) {
  const GpuModel& reference = *find_gpu_model("H200");
  const Reference* const known = reference_of(recipe, precision);
  const std::string basis = known ? known->precision : "fp32";
  return moved(on_reference(reference, known, job, batch, samples, basis), reference, basis, gpu, precision);
}

double sum_latency_seconds(const GpuModel& gpu) {
  if (!plane_uses_peers()) return kSumLatency;
  const bool reads_peers = gpu.nvlink_gb_per_s && plane_asked_for() != Plane::kPinned;
  return reads_peers ? kPeerSumLatency : kPinnedSumLatency;
}
double sum_float_seconds(const GpuModel& gpu) { return 1.25 * 4 / link_bytes_per_second(gpu); }
std::string sums_go_over(const GpuModel& gpu) {
  const double speed = link_bytes_per_second(gpu) / 1e9;
  const std::string by = plane_uses_peers()
                             ? fmt::format(", by kernels ({:.0f} us from a probe on one H200, not from a run)",
                                           1e6 * sum_latency_seconds(gpu))
                             : "";
  if (gpu.nvlink_gb_per_s) return fmt::format("{}: NVLink, {:.0f} GB/s each way, peer access{}", gpu.name, speed, by);
  return fmt::format("{}: PCIe, {:.0f} GB/s each way, through host memory: without peer access{}", gpu.name, speed, by);
}

Scaled scale_to(const std::vector<const GpuModel*>& gpus, const Calibration& here, const JobShape& job,
                const std::vector<int64_t>& batches, const std::string& precision) {
  Scaled scaled;
  const bool own = std::ranges::any_of(here.trials, [&](const Trial& t) { return t.precision == precision; });
  const std::string tried = own ? precision : "fp32";
  const StepModel steps(here, tried);
  const Trial* const measured = best_trial(here, tried);
  const GpuModel* const source = find_gpu_model(measured->devices[0].model);
  const GpuModel& reference = source ? *source : *find_gpu_model("H200");
  const bool gpu = measured->devices[0].model != "cpu";
  const MemoryModel memory(here, tried, gpu);
  const Reference* const known = source ? nullptr : reference_of(here.recipe, precision);
  const std::string basis = source ? tried : known ? known->precision : "fp32";

  const auto shares_at = [&](int64_t batch) {  // on the reference
    const double samples = steps.samples(batch, 1);
    StepShares shares = by_book(reference, job, samples, basis);
    if (source) {
      const double seconds = steps.step(batch, {{measured->devices[0].model, 1, -1}}).seconds;
      const double by_peaks = std::min(shares.seconds(), .9 * seconds);
      const double part = by_peaks / shares.seconds();
      return StepShares{shares.arithmetic * part, shares.memory * part, seconds - by_peaks};
    }
    return on_reference(reference, known, job, batch, samples, basis);
  };
  scaled.error = source ? (own ? .35 : .5) : known ? .6 : 2;
  scaled.from =
      source  ? fmt::format("{} measured here", measured->devices[0].model)
      : known ? std::string("an H200 measured before (docs/results.md); here there is no GPU")
              : std::string("the GPUs' data sheets and a guess of 0.6 ms of launches a step; here there is no GPU");
  scaled.calibration = {.recipe = here.recipe,
                        .machine = here.machine,
                        .made = here.made,
                        .cores = here.cores,
                        .load = here.load,
                        .trials = {}};
  std::set<std::string_view> done;
  for (const GpuModel* target : gpus) {
    if (!done.insert(target->name).second) continue;
    if (gpus.size() > 1) scaled.between += (scaled.between.empty() ? "" : "; ") + sums_go_over(*target);
    for (const int64_t batch : batches) {
      const StepShares shares = moved(shares_at(batch), reference, basis, *target, precision);
      if (scaled.shares.seconds() == 0) scaled.shares = shares;
      scaled.by_gpu.emplace(target->name, shares);
      const MemoryForecast forecast = memory.worker(job, batch, static_cast<int>(steps.shards_of(1)), 1, 1e9);
      Trial trial = *measured;
      trial.devices = {{std::string(target->name), 1, -1}};
      trial.batch = batch;
      trial.precision = precision;
      trial.step_seconds = shares.seconds();
      trial.samples = steps.samples(batch, 1);
      trial.deviation = 0;
      trial.shape = job;
      trial.start_seconds = std::max(kGpuStartSeconds, measured->start_seconds);
      trial.memory_start = job.bytes_on_device(/*gpu=*/true) + kContextBytes;
      const auto vector_bytes = static_cast<int64_t>(4 * job.combine_floats);
      double alive = 1;  // passes that were measured, side by side or as one
      if (!gpu && trial.in_pass > 1)
        alive = static_cast<double>(trial.shards) / static_cast<double>(std::exchange(trial.in_pass, trial.shards));
      else if (!gpu)
        alive = static_cast<double>(most_side_by_side(trial.shards, vector_bytes));
      trial.memory_bytes = trial.memory_start + static_cast<double>(trial.shards) * job.shard_bytes +
                           alive * (forecast.activations + forecast.gradients);
      scaled.calibration.trials.push_back(trial);
      if (batch != batches.front() || gpus.size() < 2) continue;
      trial.devices.push_back(trial.devices[0]);
      trial.step_seconds = 0;  // below: the model says what one GPU of two computes
      trial.memory_bytes = 0;
      trial.combine_seconds = sum_latency_seconds(*target) + job.combine_floats * sum_float_seconds(*target);
      scaled.calibration.trials.push_back(std::move(trial));
    }
  }
  set_pair_steps(scaled.calibration, precision);
  return scaled;
}

Calibration side_by_side(Calibration alone, const JobShape& job, int agents, double slower) {
  for (Trial& trial : alone.trials) {
    if (trial.memory_bytes > 0) {
      const auto shards = static_cast<double>(trial.shards);
      const double rest = trial.memory_bytes - trial.memory_start - shards * trial.shape.shard_bytes;
      const bool gpu = trial.devices[0].model != "cpu";
      trial.memory_start += job.bytes_on_device(gpu) - trial.shape.bytes_on_device(gpu);
      trial.memory_bytes = trial.memory_start + shards * job.shard_bytes + agents * std::max(0.0, rest);
    }
    trial.shape = job;
    trial.samples *= agents;
    trial.snapshot_seconds *= agents;
    for (double* seconds : {&trial.step_seconds, &trial.compute_seconds, &trial.combine_seconds}) *seconds *= slower;
  }
  return alone;
}

JobShape sum_of(const std::vector<JobShape>& jobs) {
  JobShape all = jobs.front();
  for (size_t i = 1; i < jobs.size(); ++i) {
    all.weights_bytes += jobs[i].weights_bytes;
    all.optimizer_bytes += jobs[i].optimizer_bytes;
    all.other_bytes += jobs[i].other_bytes;
    all.shard_bytes += jobs[i].shard_bytes;
    all.combine_floats += jobs[i].combine_floats;
    all.kept_bytes += jobs[i].kept_bytes;
  }
  return all;
}

}  // namespace tandem
