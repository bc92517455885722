#include "forecast/set_costs.h"

#include <algorithm>
#include <cmath>

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

double share_of_one_more(const std::vector<RunCost>& members, double seconds_together) {
  const auto slowest = std::ranges::max_element(members, {}, &RunCost::alone);
  double others = 0;
  for (auto one = members.begin(); one != members.end(); ++one)
    if (one != slowest) others += one->divided;
  if (others <= 0 || seconds_together <= 0) return kOfOneMore;
  return std::max(0.0, seconds_together - slowest->alone()) / others;
}

const GpuModel& gpu_or_small(const std::string& name) {
  const GpuModel* const found = find_gpu_model(name);
  return found ? *found : *find_gpu_model(kGpuOfNoBook);
}

double usable_gpu_bytes(double memory_fraction, const SetKnown::Memory& memory) {
  constexpr double kWhole = 64e6;
  if (memory.total <= 0) return 0;
  const double most = memory_fraction * memory.total;
  const double usable = (memory.free > 0 ? std::min(most, memory.free) : most) - kContextBytes;
  return std::max(1.0, kWhole * std::floor(usable / kWhole));
}

SetDevice set_device(const std::string& name, const GpuModel& gpu, int model, double memory_fraction,
                     const SetKnown::Memory& memory) {
  const SetKnown::Memory sold{.total = gpu.memory_gb * 1e9, .free = 0};
  return {.name = name,
          .model = model,
          .memory_bytes = usable_gpu_bytes(memory_fraction, memory.total > 0 ? memory : sold),
          .start_seconds = kGpuStartSeconds,
          .sum_seconds = sum_latency_seconds(gpu),
          .float_seconds = sum_float_seconds(gpu)};
}

}  // namespace tandem
