#include "explain/read_run.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>

#include "base/cores.h"
#include "base/plain_file.h"
#include "telemetry/atomic_file.h"
#include "telemetry/resolved_recipe.h"

namespace tandem {
namespace {

constexpr double kFewestSteps = 20;
constexpr double kIdlePercent = 5;
constexpr const char* kSlowedDown[] = {"power_cap", "hw_slowdown", "thermal_sw", "thermal_hw", "power_brake"};

std::vector<TimesLine> newest_start(const std::filesystem::path& path) {
  std::vector<TimesLine> lines;
  std::ifstream file = read_plain_file(path);
  for (std::string text; std::getline(file, text);) {
    auto line = line_from(text);
    if (!line || line->ranks.empty()) continue;
    if (!lines.empty() && line->generation < lines.back().generation) lines.clear();
    if (!lines.empty() &&
        (line->step < lines.back().step || line->ranks.front().times.step < lines.back().ranks.front().times.step))
      lines.clear();
    lines.push_back(std::move(*line));
  }
  return lines;
}

double steps_of(const std::vector<RankRow>& rows) {
  double most = 0;
  for (const RankRow& row : rows) most = std::max(most, row.times.steps);
  return most;
}

struct Gpu {
  int readings = 0, slowed = 0;
  std::vector<double> clock, clock_slowed;
  double most_clock = 0;
  std::map<std::string, int> reasons;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double number(const nlohmann::json& from, const char* key, double otherwise) {
  return from.contains(key) && from[key].is_number() ? from[key].get<double>() : otherwise;
}

void see(Gpu& gpu, const nlohmann::json& reading) {
  if (number(reading, "util", 100) < kIdlePercent) return;
  ++gpu.readings;
  gpu.most_clock = std::max(gpu.most_clock, number(reading, "sm_max_mhz", 0));
  bool slowed = false;
  if (reading.contains("throttle") && reading["throttle"].is_array())
    for (const auto& reason : reading["throttle"])
      if (reason.is_string() &&
          std::find(std::begin(kSlowedDown), std::end(kSlowedDown), reason.get<std::string>()) != std::end(kSlowedDown))
        slowed = true, ++gpu.reasons[reason.get<std::string>()];
  gpu.slowed += slowed;
  if (const double clock = number(reading, "sm_mhz", 0); clock > 0)
    (slowed ? gpu.clock_slowed : gpu.clock).push_back(clock);
}

}  // namespace

std::vector<RankRow> between(const TimesLine& earlier, const TimesLine& later) {
  std::vector<RankRow> rows = later.ranks;
  for (RankRow& row : rows)
    for (const RankRow& before : earlier.ranks)
      if (before.rank == row.rank) row.times = row.times - before.times;
  return rows;
}

void read_machine(const TimesLine& earlier, const TimesLine& later, Evidence& evidence) {
  if (earlier.idle && later.idle && later.time > earlier.time)
    evidence.idle_cores = std::max(0.0, (*later.idle - *earlier.idle) / (later.time - earlier.time));
  evidence.others = later.others;
  evidence.others_now = !later.others.empty();
  if (later.cores > 0) evidence.cores = later.cores;
  if (evidence.loader_threads < 0) evidence.loader_threads = std::max(1, later.loader_threads);
}

void read_settings(const std::filesystem::path& run_dir, Evidence& evidence) {
  std::map<std::string, std::string> settings;
  for (const auto& setting : read_resolved_recipe(read_small_file(run_dir / "recipe.toml", 1 << 20).value_or("")))
    settings[setting.key] = setting.value;
  const auto whole = [&](const char* key, int64_t otherwise) {
    const auto found = settings.find(key);
    const int64_t value = found == settings.end() ? 0 : std::atoll(found->second.c_str());
    return value > 0 ? value : otherwise;
  };
  const auto word = [&](const char* key) {
    std::string text = settings.contains(key) ? settings[key] : "";
    std::erase(text, '"');
    return text;
  };
  evidence.recipe = word("recipe");
  if (!word("precision").empty()) evidence.precision = word("precision");
  evidence.batch = whole("batch_size", 1);
  evidence.shards = whole("shards", 1);
  evidence.accumulation = whole("accumulation", 1);
  evidence.loader_threads = word("loader.threads") == "-1" ? -1 : whole("loader.threads", 0);
  evidence.prefetch = word("loader.prefetch") == "-1" ? -1 : whole("loader.prefetch", 1);
  evidence.cores = usable_cores();
}

void read_gpus(const std::filesystem::path& run_dir, double from, double to, size_t tail_bytes, Evidence& evidence) {
  std::ifstream file = read_plain_file(run_dir / "gpus.jsonl", std::ios::ate);
  if (!file) return;
  const auto size = static_cast<size_t>(std::max<std::streamoff>(file.tellg(), 0));
  const bool cut = tail_bytes > 0 && size > tail_bytes;
  file.seekg(static_cast<std::streamoff>(cut ? size - tail_bytes : 0));
  std::string text;
  if (cut) std::getline(file, text);
  std::map<int, Gpu> gpus;
  std::map<int, std::pair<double, int>> others;  // use in percent, readings
  while (std::getline(file, text)) {
    const auto line = nlohmann::json::parse(text, nullptr, false);
    if (!line.is_object() || number(line, "t", 0) < from - 1 || number(line, "t", 0) > to + 1) continue;
    for (const char* group : {"gpus", "others"}) {
      if (!line.contains(group) || !line[group].is_array()) continue;
      for (const auto& reading : line[group]) {
        if (!reading.is_object() || !reading.contains("index") || !reading["index"].is_number_integer()) continue;
        const int index = reading["index"];
        if (group == std::string("gpus")) {
          see(gpus[index], reading);
        } else {
          others[index].first += number(reading, "util", 100);
          ++others[index].second;
        }
      }
    }
  }
  for (const auto& [index, gpu] : gpus) {
    GpuEvidence one{.index = index};
    if (gpu.slowed > 0 && !gpu.clock_slowed.empty()) {
      // What it has otherwise: seen in this run, or what its driver says.
      const double otherwise = gpu.clock.size() >= 3 ? median(gpu.clock) : gpu.most_clock;
      one.throttled = static_cast<double>(gpu.slowed) / gpu.readings;
      if (otherwise > 0) one.clock = std::min(1.0, median(gpu.clock_slowed) / otherwise);
      std::vector<std::pair<int, std::string>> reasons;
      for (const auto& [name, count] : gpu.reasons) reasons.emplace_back(-count, name);
      std::sort(reasons.begin(), reasons.end());
      for (auto& [count, name] : reasons) one.reasons.push_back(name);
    }
    evidence.gpus.push_back(std::move(one));
  }
  for (const auto& [index, used] : others)
    if (used.first / used.second < kIdlePercent) evidence.idle_gpus.push_back(index);
}

Evidence read_evidence(const std::filesystem::path& run_dir, const std::string& run) {
  Evidence evidence{.run = run};
  read_settings(run_dir, evidence);
  std::vector<TimesLine> lines = newest_start(run_dir / "ranks.jsonl");
  if (lines.empty()) return evidence;
  const TimesLine& last = lines.back();
  auto first = std::find_if(lines.begin(), lines.end(),
                            [&](const TimesLine& line) { return line.generation == last.generation; });
  evidence.ranks = between(*first, last);
  read_machine(*first, last, evidence);
  if (evidence.others.empty())
    for (auto line = lines.rbegin(); line != lines.rend() && evidence.others.empty(); ++line)
      evidence.others = line->others;
  double from = first->time;
  if (steps_of(evidence.ranks) < kFewestSteps) {  // too short: all of the start
    evidence.ranks = last.ranks;
    from = 0;
  }
  read_gpus(run_dir, from, last.time, 0, evidence);
  return evidence;
}

}  // namespace tandem
