#include "monitor/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "telemetry/human.h"

namespace tandem {
namespace {

template <class T>
std::string whole(const std::optional<T>& value) {
  return value ? fmt::format("{:.0f}", static_cast<double>(*value)) : "-";
}

template <class A, class B>
std::string pair_text(const std::optional<A>& a, const std::optional<B>& b, const char* unit) {
  if (!a && !b) return "-";
  return fmt::format("{}/{} {}", whole(a), whole(b), unit);
}

}  // namespace

std::string percent_text(std::optional<double> percent) { return percent ? fmt::format("{:.0f} %", *percent) : "-"; }

std::string memory_text(std::optional<uint64_t> used, std::optional<uint64_t> all) {
  if (!used && !all) return "-";
  const double unit = std::max(used.value_or(0), all.value_or(0)) < 1'000'000'000 ? 1e6 : 1e9;
  const auto one = [&](std::optional<uint64_t> bytes) {
    return bytes ? fmt::format("{:.3g}", static_cast<double>(*bytes) / unit) : std::string("-");
  };
  return fmt::format("{}/{} {}", one(used), one(all), unit == 1e6 ? "MB" : "GB");
}

std::string power_text(const GpuFacts& facts, const GpuReading& gpu) {
  return pair_text(gpu.power_w, gpu.power_limit_w ? gpu.power_limit_w : facts.power_limit_w, "W");
}

std::string temperature_text(const GpuFacts& facts, const GpuReading& gpu) {
  return pair_text(gpu.temperature_c, facts.slowdown_c, "C");
}

std::string clocks_text(const GpuReading& gpu) { return pair_text(gpu.sm_clock_mhz, gpu.memory_clock_mhz, "MHz"); }

std::string traffic_text(const GpuReading& gpu) {
  if (!gpu.pcie_rx_bytes_per_s && !gpu.pcie_tx_bytes_per_s) return "-";
  const double most = std::max(gpu.pcie_rx_bytes_per_s.value_or(0), gpu.pcie_tx_bytes_per_s.value_or(0));
  const double unit = most < 1e9 ? 1e6 : 1e9;
  const auto one = [&](std::optional<double> bytes) {
    return bytes ? fmt::format("{:.3g}", *bytes / unit) : std::string("-");
  };
  return fmt::format("{}/{} {}B/s", one(gpu.pcie_rx_bytes_per_s), one(gpu.pcie_tx_bytes_per_s),
                     unit == 1e6 ? "M" : "G");
}

std::string ecc_text(const GpuReading& gpu) {
  if (!gpu.ecc_corrected && !gpu.ecc_uncorrected) return "-";
  return fmt::format("{}/{}", whole(gpu.ecc_corrected), whole(gpu.ecc_uncorrected));
}

std::string throttle_text(const GpuReading& gpu) {
  std::string text;
  if (!gpu.throttle) return text;
  for (const Throttle reason : *gpu.throttle) {
    if (reason == Throttle::kIdle) continue;  // a GPU with nothing to do is not held back
    text += (text.empty() ? "" : ", ") + std::string(throttle_in_words(reason));
  }
  return text;
}

std::string short_throttle_text(const GpuReading& gpu) {
  std::set<std::string> words;
  for (const Throttle reason : gpu.throttle.value_or(std::vector<Throttle>{})) {
    if (reason == Throttle::kIdle) continue;
    words.insert(throttle_is_thermal(reason)                                        ? "heat"
                 : reason == Throttle::kPowerCap || reason == Throttle::kPowerBrake ? "power"
                 : reason == Throttle::kHwSlowdown                                  ? "slowdown"
                                                                                    : "clocks");
  }
  if (words.contains("heat")) words.erase("slowdown");  // that is why
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string driver_text(const MonitorSample& sample) {
  return sample.driver + (sample.driver_note.empty() ? "" : " (" + sample.driver_note + ")");
}

std::string gpu_note(const MonitorSample& sample, size_t gpu) {
  const std::string throttle = throttle_text(sample.gpus[gpu]);
  std::string text = throttle.empty() ? "" : "held back by " + throttle;
  if (sample.hidden(gpu)) text += std::string(text.empty() ? "" : "; ") + "hidden by CUDA_VISIBLE_DEVICES";
  const GpuFacts& facts = sample.facts[gpu];
  if (facts.mig_on.value_or(false))
    text += fmt::format("{}MIG: {}", text.empty() ? "" : "; ",
                        facts.mig.empty() ? "no instance" : fmt::format("{} instances", facts.mig.size()));
  return text;
}

std::string short_gpu_name(const GpuFacts& facts) {
  std::string name = facts.name.value_or("GPU");
  for (const std::string& word : {std::string("NVIDIA "), std::string("GeForce ")})
    if (name.starts_with(word)) name = name.substr(word.size());
  return name;
}

std::string process_text(const MonitorSample& sample, const GpuProcess& process) {
  std::string name = process.name.value_or("");
  if (const size_t slash = name.rfind('/'); slash != std::string::npos) name = name.substr(slash + 1);
  std::string text = std::to_string(process.pid);
  if (!name.empty()) text += " " + name;
  if (process.memory_bytes) text += " " + bytes_text(*process.memory_bytes);
  if (const std::string owner = sample.owner_of(process.pid); !owner.empty()) text += " " + owner;
  return text;
}

std::string step_text(const RunReading& run) {
  return run.total_steps > 0 ? fmt::format("{} of {}", run.step, run.total_steps) : std::to_string(run.step);
}

std::string head_text(const RunReading& run) {
  return run.name.empty() || run.id.starts_with(run.name + "-") ? run.id : run.name + "  " + run.id;
}

std::string rate_text(const RunReading& run) {
  if (run.stalled()) return fmt::format("no step for {}", duration_text(*run.since_step_s));
  if (!run.steps_per_s) return "-";
  std::string text = short_number(*run.steps_per_s) + " steps/s";
  if (run.samples_per_s)
    text += fmt::format(", {} {}/s", short_number(*run.samples_per_s), run.unit.empty() ? "samples" : run.unit);
  return text;
}

std::string phase_text(const RunReading& run) {
  std::string text;
  for (const auto& [name, share] : run.phases)
    text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", name, 100 * share);
  return text;
}

std::string shards_text(const RankReading& rank) {
  if (rank.shards == 0) return "no shards";
  if (rank.shards == 1) return fmt::format("shard {}", rank.first_shard);
  return fmt::format("shards {}-{}", rank.first_shard, rank.first_shard + rank.shards - 1);
}

std::string rank_state_text(const RankReading& rank) {
  if (rank.state == "computing" && !rank.phase.empty()) return "computing " + rank.phase;
  return rank.state.empty() ? "-" : rank.state;
}

std::optional<double> part_of(std::optional<double> value, std::optional<double> whole) {
  if (!value || !whole || *whole <= 0) return std::nullopt;
  return std::clamp(*value / *whole, 0.0, 1.0);
}

}  // namespace tandem
