// monitor/csv.cc -- a sample as lines of one table: the machine, each GPU, each run.
#include <fmt/format.h>

#include <cmath>

#include "monitor/formats.h"
#include "telemetry/human.h"

namespace tandem {
namespace {

// In the order of the columns.
enum CsvColumn {
  kTime,
  kSource,
  kId,
  kName,
  kUtilisation,
  kMemoryUsed,
  kMemoryTotal,
  kPower,
  kPowerLimit,
  kTemperature,
  kSlowdown,
  kSmClock,
  kMemoryClock,
  kFan,
  kEccCorrected,
  kEccUncorrected,
  kPcieRx,
  kPcieTx,
  kThrottle,
  kProcesses,
  kStatus,
  kStep,
  kTotalSteps,
  kLoss,
  kStepsPerS,
  kSamplesPerS,
  kRanks,
  kReturn,
  kScore,
  kColumns
};
constexpr const char* kNames[kColumns] = {"time",
                                          "source",
                                          "id",
                                          "name",
                                          "utilisation_percent",
                                          "memory_used_bytes",
                                          "memory_total_bytes",
                                          "power_w",
                                          "power_limit_w",
                                          "temperature_c",
                                          "slowdown_c",
                                          "sm_clock_mhz",
                                          "memory_clock_mhz",
                                          "fan_percent",
                                          "ecc_corrected",
                                          "ecc_uncorrected",
                                          "pcie_rx_bytes_per_s",
                                          "pcie_tx_bytes_per_s",
                                          "throttle",
                                          "processes",
                                          "status",
                                          "step",
                                          "total_steps",
                                          "loss",
                                          "steps_per_s",
                                          "samples_per_s",
                                          "ranks",
                                          "average_return",
                                          "score"};

class Row {
 public:
  Row(double time, const char* source, const std::string& id) {
    cells_[kTime] = utc_iso(time, true);
    cells_[kSource] = source;
    text(kId, id);
  }
  void text(CsvColumn column, const std::string& value) {
    if (value.find_first_of(",\"\r\n") == std::string::npos) {
      cells_[column] = value;
      return;
    }
    std::string& cell = cells_[column] = "\"";
    for (const char c : value) cell += c == '"' ? "\"\"" : std::string(1, c == '\n' || c == '\r' ? ' ' : c);
    cell += '"';
  }
  template <class T>
  void number(CsvColumn column, const std::optional<T>& value) {
    if (!value) return;
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isfinite(*value))
        cells_[column] = std::abs(*value) >= 1e5 ? fmt::format("{:.0f}", *value) : fmt::format("{:.6g}", *value);
    } else {
      cells_[column] = std::to_string(*value);
    }
  }
  std::string line() const {
    std::string line;
    for (int i = 0; i < kColumns; ++i) line += (i ? "," : "") + cells_[i];
    return line + "\n";
  }

 private:
  std::string cells_[kColumns];
};

}  // namespace

std::string csv_header() {
  std::string line;
  for (int i = 0; i < kColumns; ++i) line += (i ? "," : "") + std::string(kNames[i]);
  return line + "\n";
}

std::string csv_lines(const MonitorSample& sample) {
  Row host(sample.time, "host", sample.host.name);
  host.number(kUtilisation, sample.host.cpu_percent);
  host.number(kMemoryUsed, sample.host.memory_used_bytes);
  host.number(kMemoryTotal, sample.host.memory_total_bytes);
  std::string text = host.line();
  for (size_t i = 0; i < sample.gpus.size(); ++i) {
    const GpuFacts& facts = sample.facts[i];
    const GpuReading& gpu = sample.gpus[i];
    Row row(sample.time, "gpu", std::to_string(facts.index));
    row.text(kName, facts.name.value_or(""));
    row.number(kUtilisation, gpu.utilisation_percent);
    row.number(kMemoryUsed, gpu.memory_used_bytes);
    row.number(kMemoryTotal, facts.memory_bytes);
    row.number(kPower, gpu.power_w);
    row.number(kPowerLimit, gpu.power_limit_w ? gpu.power_limit_w : facts.power_limit_w);
    row.number(kTemperature, gpu.temperature_c);
    row.number(kSlowdown, facts.slowdown_c);
    row.number(kSmClock, gpu.sm_clock_mhz);
    row.number(kMemoryClock, gpu.memory_clock_mhz);
    row.number(kFan, gpu.fan_percent);
    row.number(kEccCorrected, gpu.ecc_corrected);
    row.number(kEccUncorrected, gpu.ecc_uncorrected);
    row.number(kPcieRx, gpu.pcie_rx_bytes_per_s);
    row.number(kPcieTx, gpu.pcie_tx_bytes_per_s);
    std::string reasons;
    for (const Throttle reason : gpu.throttle.value_or(std::vector<Throttle>{}))
      reasons += (reasons.empty() ? "" : " ") + std::string(throttle_name(reason));
    row.text(kThrottle, reasons);
    if (gpu.processes) row.number(kProcesses, std::optional<size_t>(gpu.processes->size()));
    row.text(kStatus, gpu.lost ? "lost" : !gpu.trouble.empty() ? gpu.trouble : facts.trouble);
    text += row.line();
  }
  for (const RunReading& run : sample.runs) {
    Row row(sample.time, "run", run.id);
    row.text(kName, run.recipe);
    row.text(kStatus, run.status);
    row.number(kStep, std::optional<int64_t>(run.step));
    if (run.total_steps > 0) row.number(kTotalSteps, std::optional<int64_t>(run.total_steps));
    row.number(kLoss, run.loss);
    row.number(kStepsPerS, run.steps_per_s);
    row.number(kSamplesPerS, run.samples_per_s);
    if (!run.ranks.empty()) row.number(kRanks, std::optional<size_t>(run.ranks.size()));
    if (const LearningFigures::Agent* const agent = run.figures.only()) {
      row.number(kReturn, std::optional(agent->average_return));
      row.number(kScore, std::optional(agent->score));
    }
    text += row.line();
    for (const LearningFigures::Agent& agent : run.figures.agents) {
      if (run.figures.only()) break;
      Row one(sample.time, "agent", run.id);  // of several that learn in one run
      one.text(kName, agent.name);
      one.number(kStep, std::optional<int64_t>(run.step));
      one.number(kReturn, std::optional(agent.average_return));
      one.number(kScore, std::optional(agent.score));
      text += one.line();
    }
  }
  return text;
}

}  // namespace tandem
