// monitor/prometheus.cc -- a sample in Prometheus' text format: one family after the other, absent values absent.
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <set>

#include "monitor/formats.h"

namespace tandem {
namespace {

using Labels = std::vector<std::pair<const char*, std::string>>;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"')
      out += '\\', out += c;
    else if (c == '\n')
      out += "\\n";
    else if (static_cast<unsigned char>(c) >= 0x20)
      out += c;
  }
  return out;
}

class Text {
 public:
  // The head of a family is written with its first value only, so that none stands empty.
  void family(const char* name, const char* type, const char* help) {
    name_ = name;
    head_ = fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
    seen_.clear();
  }
  template <class T>
  void value(const Labels& labels, const std::optional<T>& value) {
    if (!value) return;
    const auto number = static_cast<double>(*value);
    if (!std::isfinite(number)) return;
    std::string text;
    for (const auto& [name, word] : labels)
      text += fmt::format("{}{}=\"{}\"", text.empty() ? "" : ",", name, escaped(word));
    if (!seen_.insert(text).second) return;
    out_ += std::exchange(head_, "");
    out_ += text.empty() ? fmt::format("{} {}\n", name_, number) : fmt::format("{}{{{}}} {}\n", name_, text, number);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_, head_, name_;
  std::set<std::string> seen_;
};

void host_families(Text& text, const MonitorSample& sample) {
  const HostReading& host = sample.host;
  text.family("tandem_host_cpu_used_ratio", "gauge", "Share of the machine's CPU time in use, 0 to 1.");
  text.value({}, host.cpu_percent ? std::optional(*host.cpu_percent / 100) : std::nullopt);
  text.family("tandem_host_memory_size_bytes", "gauge", "Memory of the machine.");
  text.value({}, host.memory_total_bytes);
  text.family("tandem_host_memory_used_bytes", "gauge", "Memory of the machine in use.");
  text.value({}, host.memory_used_bytes);
}

void gpu_families(Text& text, const MonitorSample& sample) {
  const auto each = [&](const char* name, const char* type, const char* help,
                        const std::function<std::optional<double>(const GpuFacts&, const GpuReading&)>& value) {
    text.family(name, type, help);
    for (size_t i = 0; i < sample.gpus.size(); ++i)
      text.value({{"gpu", std::to_string(sample.facts[i].index)}}, value(sample.facts[i], sample.gpus[i]));
  };
  using F = const GpuFacts&;
  using R = const GpuReading&;
  const auto ratio = [](std::optional<int> percent) {
    return percent ? std::optional<double>(*percent / 100.0) : std::nullopt;
  };
  text.family("tandem_gpu_info", "gauge", "What a GPU is; the value is always 1.");
  for (const GpuFacts& facts : sample.facts)
    text.value(
        {{"gpu", std::to_string(facts.index)}, {"name", facts.name.value_or("")}, {"uuid", facts.uuid.value_or("")}},
        std::optional(1));
  each("tandem_gpu_up", "gauge", "1 if the driver answers for this GPU, else 0.", [](F facts, R gpu) {
    return std::optional(gpu.trouble.empty() && facts.trouble.empty() && !gpu.lost ? 1.0 : 0.0);
  });
  each("tandem_gpu_utilisation_ratio", "gauge", "Share of time in which a kernel ran, 0 to 1.",
       [&](F, R gpu) { return ratio(gpu.utilisation_percent); });
  each("tandem_gpu_memory_size_bytes", "gauge", "Memory of the GPU.",
       [](F facts, R) { return std::optional<double>(facts.memory_bytes); });
  each("tandem_gpu_memory_used_bytes", "gauge", "Memory of the GPU in use.",
       [](F, R gpu) { return std::optional<double>(gpu.memory_used_bytes); });
  each("tandem_gpu_power_watts", "gauge", "Power drawn.", [](F, R gpu) { return gpu.power_w; });
  each("tandem_gpu_power_limit_watts", "gauge", "Power limit in force.",
       [](F facts, R gpu) { return gpu.power_limit_w ? gpu.power_limit_w : facts.power_limit_w; });
  each("tandem_gpu_energy_joules_total", "counter", "Energy used since the driver was loaded.",
       [](F, R gpu) { return gpu.energy_j; });
  each("tandem_gpu_temperature_celsius", "gauge", "Temperature of the GPU.",
       [](F, R gpu) { return std::optional<double>(gpu.temperature_c); });
  each("tandem_gpu_slowdown_temperature_celsius", "gauge", "Temperature at which the hardware slows the GPU down.",
       [](F facts, R) { return std::optional<double>(facts.slowdown_c); });
  each("tandem_gpu_sm_clock_hertz", "gauge", "Clock of the multiprocessors.",
       [](F, R gpu) { return gpu.sm_clock_mhz ? std::optional(*gpu.sm_clock_mhz * 1e6) : std::nullopt; });
  each("tandem_gpu_memory_clock_hertz", "gauge", "Clock of the memory.",
       [](F, R gpu) { return gpu.memory_clock_mhz ? std::optional(*gpu.memory_clock_mhz * 1e6) : std::nullopt; });
  each("tandem_gpu_fan_ratio", "gauge", "Speed of the fastest fan, 0 to 1.",
       [&](F, R gpu) { return ratio(gpu.fan_percent); });
  each("tandem_gpu_ecc_corrected_errors_total", "counter",
       "Memory errors that were corrected since the driver was loaded.",
       [](F, R gpu) { return std::optional<double>(gpu.ecc_corrected); });
  each("tandem_gpu_ecc_uncorrected_errors_total", "counter",
       "Memory errors that were not corrected since the driver was loaded.",
       [](F, R gpu) { return std::optional<double>(gpu.ecc_uncorrected); });
  each("tandem_gpu_pcie_receive_bytes_per_second", "gauge", "PCIe traffic into the GPU.",
       [](F, R gpu) { return gpu.pcie_rx_bytes_per_s; });
  each("tandem_gpu_pcie_transmit_bytes_per_second", "gauge", "PCIe traffic out of the GPU.",
       [](F, R gpu) { return gpu.pcie_tx_bytes_per_s; });
  text.family("tandem_gpu_throttled", "gauge", "1 for each reason that holds the clocks back now.");
  for (size_t i = 0; i < sample.gpus.size(); ++i) {
    for (const Throttle reason : sample.gpus[i].throttle.value_or(std::vector<Throttle>{}))
      text.value({{"gpu", std::to_string(sample.facts[i].index)}, {"reason", std::string(throttle_name(reason))}},
                 std::optional(1));
  }
  each("tandem_gpu_processes", "gauge", "Processes that compute on the GPU.", [](F, R gpu) {
    return gpu.processes ? std::optional(static_cast<double>(gpu.processes->size())) : std::nullopt;
  });
}

void run_families(Text& text, const MonitorSample& sample) {
  const auto each = [&](const char* name, const char* type, const char* help,
                        const std::function<std::optional<double>(const RunReading&)>& value) {
    text.family(name, type, help);
    for (const RunReading& run : sample.runs) text.value({{"run", run.id}}, value(run));
  };
  text.family("tandem_run_info", "gauge", "What a run is and how it stands; the value is always 1.");
  for (const RunReading& run : sample.runs)
    text.value({{"run", run.id}, {"recipe", run.recipe}, {"status", run.status}}, std::optional(1));
  each("tandem_run_up", "gauge", "1 while the run goes on, else 0.",
       [](const RunReading& run) { return std::optional(run.alive() ? 1.0 : 0.0); });
  each("tandem_run_step", "gauge", "Updates made; a run that goes back to a checkpoint counts from there.",
       [](const RunReading& run) { return std::optional(static_cast<double>(run.step)); });
  each("tandem_run_planned_steps", "gauge", "Updates at which the run ends.", [](const RunReading& run) {
    return run.total_steps > 0 ? std::optional(static_cast<double>(run.total_steps)) : std::nullopt;
  });
  each("tandem_run_loss", "gauge", "Loss of the newest step.", [](const RunReading& run) { return run.loss; });
  const auto each_agent = [&](const char* name, const char* help, double LearningFigures::Agent::*figure) {
    text.family(name, "gauge", help);
    for (const RunReading& run : sample.runs)
      for (const LearningFigures::Agent& agent : run.figures.agents)
        text.value(agent.name.empty() ? Labels{{"run", run.id}} : Labels{{"run", run.id}, {"agent", agent.name}},
                   std::optional(agent.*figure));
  };
  each_agent("tandem_run_average_return", "Mean return of the last episodes.", &LearningFigures::Agent::average_return);
  each_agent("tandem_run_score", "Score of the last episodes on the problem's own scale.",
             &LearningFigures::Agent::score);
  each("tandem_run_steps_per_second", "gauge", "Updates a second over the last ten seconds.",
       [](const RunReading& run) { return run.steps_per_s; });
  each("tandem_run_samples_per_second", "gauge", "Samples (in the run's unit) a second over the last ten seconds.",
       [](const RunReading& run) { return run.samples_per_s; });
  each("tandem_run_remaining_seconds", "gauge", "Time to the end of the run at its present rate.",
       [](const RunReading& run) { return run.seconds_left; });
  const auto each_rank = [&](const char* name, const char* help,
                             const std::function<std::optional<double>(const RankReading&)>& value) {
    text.family(name, "gauge", help);
    for (const RunReading& run : sample.runs) {
      for (const RankReading& rank : run.ranks)
        text.value({{"run", run.id}, {"rank", std::to_string(rank.rank)}, {"device", rank.device}}, value(rank));
    }
  };
  each_rank("tandem_rank_shards", "Shards that a worker computes.",
            [](const RankReading& rank) { return std::optional(static_cast<double>(rank.shards)); });
  each_rank("tandem_rank_shards_per_second", "Speed of a worker while it computes.",
            [](const RankReading& rank) { return rank.shards_per_s; });
  each_rank("tandem_rank_busy_ratio", "Share of time in which a worker computes, 0 to 1.", [](const RankReading& rank) {
    return rank.busy_percent ? std::optional(*rank.busy_percent / 100) : std::nullopt;
  });
  each_rank("tandem_rank_memory_bytes", "Resident memory of a worker.",
            [](const RankReading& rank) { return std::optional<double>(rank.memory_bytes); });
}

}  // namespace

std::string prometheus_text(const MonitorSample& sample) {
  Text text;
  host_families(text, sample);
  gpu_families(text, sample);
  run_families(text, sample);
  return text.take();
}

}  // namespace tandem
