// monitor/json.cc -- a sample as JSON: for `--json`, for the page, for scripts.
#include <cmath>
#include <nlohmann/json.hpp>

#include "monitor/formats.h"

namespace tandem {
namespace {

using nlohmann::json;

template <class T>
void put(json& object, const char* key, const std::optional<T>& value) {
  if (!value) return;
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(*value)) return;
    // Six digits are more than any sensor has, and a third of the bytes.
    const double size = std::abs(*value);
    const double scale = size > 1e-200 && size < 1e15 ? std::pow(10, 6 - std::ceil(std::log10(size))) : 0;
    object[key] = scale > 0 ? std::round(*value * scale) / scale : *value;
  } else {
    object[key] = *value;
  }
}

void put(json& object, const char* key, const std::string& text) {
  if (!text.empty()) object[key] = text;
}

json host_json(const HostReading& host) {
  json out = {{"name", host.name}};
  if (host.cpus > 0) out["cpus"] = host.cpus;
  put(out, "cpu_percent", host.cpu_percent);
  put(out, "load", host.load);
  put(out, "memory_total_bytes", host.memory_total_bytes);
  put(out, "memory_used_bytes", host.memory_used_bytes);
  return out;
}

json gpu_json(const MonitorSample& sample, size_t at) {
  const GpuFacts& facts = sample.facts[at];
  const GpuReading& gpu = sample.gpus[at];
  json out = {{"index", facts.index}};
  put(out, "name", facts.name);
  put(out, "uuid", facts.uuid);
  put(out, "bus_id", facts.bus_id);
  put(out, "trouble", !gpu.trouble.empty() ? gpu.trouble : facts.trouble);
  if (gpu.lost) out["lost"] = true;
  if (sample.hidden(at)) out["visible"] = false;  // CUDA_VISIBLE_DEVICES hides it
  put(out, "utilisation_percent", gpu.utilisation_percent);
  put(out, "memory_utilisation_percent", gpu.memory_utilisation_percent);
  put(out, "memory_total_bytes", facts.memory_bytes);
  put(out, "memory_used_bytes", gpu.memory_used_bytes);
  put(out, "power_w", gpu.power_w);
  put(out, "power_limit_w", gpu.power_limit_w ? gpu.power_limit_w : facts.power_limit_w);
  put(out, "energy_j", gpu.energy_j);
  put(out, "temperature_c", gpu.temperature_c);
  put(out, "slowdown_c", facts.slowdown_c);
  put(out, "shutdown_c", facts.shutdown_c);
  put(out, "sm_clock_mhz", gpu.sm_clock_mhz);
  put(out, "sm_clock_max_mhz", gpu.sm_clock_max_mhz);
  put(out, "memory_clock_mhz", gpu.memory_clock_mhz);
  put(out, "fan_percent", gpu.fan_percent);
  put(out, "ecc_corrected", gpu.ecc_corrected);
  put(out, "ecc_uncorrected", gpu.ecc_uncorrected);
  put(out, "pcie_generation", facts.pcie_generation);
  put(out, "pcie_width", facts.pcie_width);
  put(out, "pcie_rx_bytes_per_s", gpu.pcie_rx_bytes_per_s);
  put(out, "pcie_tx_bytes_per_s", gpu.pcie_tx_bytes_per_s);
  if (facts.mig_on.value_or(false)) {
    out["mig_instances"] = facts.mig.size();
    out["mig"] = json::array();
    for (const MigInstance& one : facts.mig) {
      json row = {{"uuid", one.uuid}, {"name", one.name}};
      put(row, "memory_bytes", one.memory_bytes);
      out["mig"].push_back(std::move(row));
    }
  }
  if (gpu.throttle) {
    out["throttle"] = json::array();
    for (const Throttle reason : *gpu.throttle) out["throttle"].push_back(throttle_name(reason));
  }
  if (gpu.processes) {
    out["processes"] = json::array();
    for (const GpuProcess& process : *gpu.processes) {
      json row = {{"pid", process.pid}};
      put(row, "name", process.name);
      put(row, "memory_bytes", process.memory_bytes);
      put(row, "run", sample.owner_of(process.pid));
      out["processes"].push_back(std::move(row));
    }
  }
  return out;
}

json rank_json(const RankReading& rank) {
  json out = {{"rank", rank.rank}, {"device", rank.device}, {"shards", rank.shards}, {"restarts", rank.restarts}};
  if (rank.shards > 0) out["first_shard"] = rank.first_shard;
  put(out, "gpu", rank.gpu);
  put(out, "state", rank.state);
  put(out, "phase", rank.phase);
  put(out, "shards_per_s", rank.shards_per_s);
  put(out, "busy_percent", rank.busy_percent);
  put(out, "pid", rank.pid);
  put(out, "cpu_percent", rank.cpu_percent);
  put(out, "memory_bytes", rank.memory_bytes);
  return out;
}

json run_json(const RunReading& run) {
  json out = {{"id", run.id}, {"recipe", run.recipe}, {"status", run.status}, {"dir", run.dir}, {"step", run.step}};
  put(out, "name", run.name);
  if (run.total_steps > 0) out["total_steps"] = run.total_steps;
  put(out, "started", run.started);
  put(out, "host", run.host);
  put(out, "unit", run.unit);
  put(out, "loss", run.loss);
  put(out, "window_loss", run.window_loss);
  for (const LearningFigures::Agent& agent : run.figures.agents) {
    json& to = run.figures.only() ? out : out["agents"][agent.name];
    put(to, "average_return", std::optional(agent.average_return));
    put(to, "score", std::optional(agent.score));
  }
  put(out, "learning_rate", run.learning_rate);
  put(out, "grad_norm", run.grad_norm);
  put(out, "steps_per_s", run.steps_per_s);
  put(out, "samples_per_s", run.samples_per_s);
  put(out, "seconds_left", run.seconds_left);
  put(out, "since_step_s", run.since_step_s);
  if (run.stalled()) out["stalled"] = true;
  out["phases"] = json::object();
  for (const auto& [name, share] : run.phases) put(out["phases"], name.c_str(), std::optional<double>(share));
  if (!run.job_losses.empty()) {
    out["job_losses"] = json::object();
    for (const auto& [name, loss] : run.job_losses) put(out["job_losses"], name.c_str(), std::optional<double>(loss));
  }
  out["ranks"] = json::array();
  for (const RankReading& rank : run.ranks) out["ranks"].push_back(rank_json(rank));
  if (run.event_time) out["event"] = {{"time", *run.event_time}, {"kind", run.event_kind}, {"text", run.event_text}};
  put(out, "warning", run.warning);
  return out;
}

}  // namespace

nlohmann::json to_json(const MonitorSample& sample) {
  json out = {{"time", std::round(sample.time * 1000) / 1000}, {"host", host_json(sample.host)}};
  put(out, "driver", sample.driver);
  put(out, "driver_note", sample.driver_note);
  put(out, "gpu_trouble", sample.gpu_trouble);
  out["gpus"] = json::array();
  for (size_t i = 0; i < sample.gpus.size(); ++i) out["gpus"].push_back(gpu_json(sample, i));
  out["runs"] = json::array();
  for (const RunReading& run : sample.runs) out["runs"].push_back(run_json(run));
  if (sample.runs_left_out > 0) out["runs_left_out"] = sample.runs_left_out;
  return out;
}

}  // namespace tandem
