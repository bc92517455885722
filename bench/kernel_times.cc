#include "kernel_times.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <map>
#include <set>

namespace tandem {

std::vector<KernelTime> kernel_times(const std::function<void()>& work) {
  namespace profiler = torch::autograd::profiler;
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
  const std::set<profiler::ActivityType> activities{profiler::ActivityType::CUDA};
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  work();
  const auto result = profiler::disableProfiler();
  std::map<std::string, KernelTime> by_name;
  for (const profiler::KinetoEvent& event : result->events()) {
    if (event.deviceType() != c10::DeviceType::CUDA) continue;
    KernelTime& kernel = by_name[event.name()];
    kernel.name = event.name();
    ++kernel.calls;
    kernel.us += static_cast<double>(event.durationNs()) * 1e-3;
  }
  std::vector<KernelTime> all;
  for (auto& [name, kernel] : by_name) all.push_back(std::move(kernel));
  std::ranges::sort(all, [](const KernelTime& a, const KernelTime& b) { return a.us > b.us; });
  return all;
}

std::string kernel_table(const std::vector<KernelTime>& kernels, size_t most) {
  double sum = 0;
  int calls = 0;
  for (const KernelTime& kernel : kernels) {
    sum += kernel.us;
    calls += kernel.calls;
  }
  std::string text = fmt::format("{:.0f} us in {} launches of {} kernels\n", sum, calls, kernels.size());
  for (size_t i = 0; i < std::min(most, kernels.size()); ++i) {
    const KernelTime& k = kernels[i];
    text += fmt::format("{:9.0f} us {:5.1f} % {:5} x {:8.1f} us  {}\n", k.us, 100 * k.us / sum, k.calls, k.us / k.calls,
                        k.name.substr(0, 160));
  }
  return text;
}

}  // namespace tandem
