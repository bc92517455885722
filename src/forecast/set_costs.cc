#include "forecast/set_costs.h"

#include <algorithm>

namespace tandem {

RunCost cost_of(const StepShares& shares) {
  const double own = shares.arithmetic + shares.memory;
  return {.fixed = shares.latency, .divided = own, .more = kOfOneMore * own};
}

RunCost cost_at(double seconds_alone, const StepShares& book) {
  const RunCost cost = cost_of(book);
  const double own = std::min(cost.divided, .9 * seconds_alone);
  return {.fixed = seconds_alone - own, .divided = own, .more = kOfOneMore * own};
}

RunCost with_batch(RunCost cost, int agents, double seconds_together) {
  if (agents < 2 || seconds_together <= 0) return cost;
  cost.more = std::max(0.0, seconds_together - cost.alone()) / (agents - 1);
  return cost;
}

const GpuModel& gpu_or_small(const std::string& name) {
  const GpuModel* const found = find_gpu_model(name);
  return found ? *found : *find_gpu_model(kGpuOfNoBook);
}

SetDevice set_device(const std::string& name, const GpuModel& gpu, int model, double memory_fraction) {
  return {.name = name,
          .model = model,
          .memory_bytes = std::max(1.0, memory_fraction * gpu.memory_gb * 1e9 - kContextBytes),
          .start_seconds = kGpuStartSeconds,
          .sum_seconds = sum_latency_seconds(),
          .float_seconds = sum_float_seconds(gpu)};
}

}  // namespace tandem
