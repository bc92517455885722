// monitor/snapshot.cc -- a sample as a page of text, for people and for terminals that are none.
#include <fmt/format.h>

#include <algorithm>

#include "monitor/formats.h"
#include "monitor/words.h"
#include "telemetry/human.h"

namespace tandem {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// Columns as wide as their widest cell, the last one as it is.
std::string table(const Rows& rows, const std::string& right_aligned) {
  std::vector<int> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i + 1 < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const int room = i + 1 < row.size() ? widths[i] - display_width(row[i]) : 0;
      const bool right = i < right_aligned.size() && right_aligned[i] == 'r';
      line += (i ? "  " : "") + (right ? std::string(room, ' ') + row[i] : row[i] + std::string(room, ' '));
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string gpus_text(const MonitorSample& sample) {
  Rows rows{{"GPU", "NAME", "UTIL", "MEMORY", "POWER", "TEMP", "SM/MEM CLOCK", "FAN", "ECC", "PCIE IN/OUT", "NOTE"}};
  for (size_t i = 0; i < sample.gpus.size(); ++i) {
    const GpuFacts& facts = sample.facts[i];
    const GpuReading& gpu = sample.gpus[i];
    const std::string trouble = !gpu.trouble.empty() ? gpu.trouble : facts.trouble;
    if (!trouble.empty()) {
      rows.push_back(
          {std::to_string(facts.index), short_gpu_name(facts), "-", "-", "-", "-", "-", "-", "-", "-", trouble});
      continue;
    }
    const std::string note = gpu_note(sample, i);
    rows.push_back({std::to_string(facts.index), short_gpu_name(facts), percent_text(gpu.utilisation_percent),
                    memory_text(gpu.memory_used_bytes, facts.memory_bytes), power_text(facts, gpu),
                    temperature_text(facts, gpu), clocks_text(gpu), percent_text(gpu.fan_percent), ecc_text(gpu),
                    traffic_text(gpu), note.empty() ? "-" : note});
  }
  std::string text = table(rows, "rlrrrrrrrr");
  for (size_t i = 0; i < sample.gpus.size(); ++i) {
    if (!sample.gpus[i].processes) continue;
    for (const GpuProcess& process : *sample.gpus[i].processes)
      text += fmt::format("  on GPU {}: {}\n", sample.facts[i].index, process_text(sample, process));
  }
  return text;
}

std::string run_text(const RunReading& run) {
  std::string text = fmt::format("run {}  {}{}  step {}{}  loss {}  {}", head_text(run), run.status,
                                 run.host.empty() ? "" : " on " + run.host, step_text(run),
                                 run.figures.text().empty() ? "" : "  " + run.figures.text(),
                                 run.loss ? loss_text(*run.loss) : "-", run.alive() ? rate_text(run) : "");
  if (run.seconds_left) text += fmt::format("  {} left", duration_text(*run.seconds_left));
  if (run.alive() && !run.phases.empty()) text += "  " + phase_text(run);
  text += "\n";
  Rows rows;
  for (const RankReading& rank : run.ranks)
    rows.push_back({fmt::format("  rank {}", rank.rank), rank.device, shards_text(rank), rank_state_text(rank),
                    rank.shards_per_s ? short_number(*rank.shards_per_s) + " shards/s" : "-",
                    "busy " + percent_text(rank.busy_percent), "cpu " + percent_text(rank.cpu_percent),
                    rank.memory_bytes ? bytes_text(*rank.memory_bytes) : "-"});
  text += table(rows, "llllrrrr");
  if (!run.warning.empty()) text += "  warning: " + run.warning + "\n";
  if (run.event_time && run.event_text != run.warning)
    text += fmt::format("  {} {}\n", utc_iso(*run.event_time), run.event_text);
  return text;
}

}  // namespace

std::string snapshot_text(const MonitorSample& sample, int width) {
  const HostReading& host = sample.host;
  std::string text =
      fmt::format("{}  {}  cpu {} of {}  memory {}", host.name, utc_iso(sample.time), percent_text(host.cpu_percent),
                  host.cpus, memory_text(host.memory_used_bytes, host.memory_total_bytes));
  if (host.load) text += fmt::format("  load {:.2f}", *host.load);
  text += sample.driver.empty() ? "\n" : fmt::format("  driver {}\n", driver_text(sample));
  if (sample.gpus.empty())
    text += fmt::format("no GPU{}\n", sample.gpu_trouble.empty() ? "" : ": " + sample.gpu_trouble);
  else
    text += gpus_text(sample);
  if (sample.runs.empty()) text += "no run is going on\n";
  for (const RunReading& run : sample.runs) text += run_text(run);
  if (sample.runs_left_out > 0) text += fmt::format("and {} more runs\n", sample.runs_left_out);
  std::string cut;
  for (size_t from = 0, end; (end = text.find('\n', from)) != std::string::npos; from = end + 1)
    cut += fit(text.substr(from, end - from), width) + "\n";
  return cut;
}

}  // namespace tandem
