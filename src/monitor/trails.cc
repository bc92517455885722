#include "monitor/trails.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace tandem {

std::vector<std::pair<std::string, std::vector<double>>> kept_values(const MonitorSample& sample) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const auto gb = [](const auto& bytes) { return bytes ? static_cast<double>(*bytes) * 1e-9 : kNone; };
  const auto plain = [](const auto& value) { return value ? static_cast<double>(*value) : kNone; };
  std::vector<std::pair<std::string, std::vector<double>>> all;
  all.push_back({"host", {plain(sample.host.cpu_percent), gb(sample.host.memory_used_bytes)}});
  for (size_t i = 0; i < sample.gpus.size(); ++i) {
    const GpuReading& gpu = sample.gpus[i];
    all.push_back(
        {fmt::format("gpu:{}", sample.facts[i].index),
         {plain(gpu.utilisation_percent), gb(gpu.memory_used_bytes), plain(gpu.power_w), plain(gpu.temperature_c),
          plain(gpu.sm_clock_mhz), plain(gpu.fan_percent), gb(gpu.pcie_rx_bytes_per_s), gb(gpu.pcie_tx_bytes_per_s)}});
  }
  for (const RunReading& run : sample.runs) {
    if (!run.alive()) continue;
    // Between two writes of the run its loss is what it was.
    const auto loss = run.window_loss || run.stalled() ? run.window_loss : run.loss;
    const LearningFigures::Agent* const agent = run.figures.only();
    all.push_back({"run:" + run.id,
                   {plain(loss), plain(run.steps_per_s), plain(run.samples_per_s),
                    agent ? agent->average_return : kNone, agent ? agent->score : kNone}});
  }
  return all;
}

void Trails::put(const std::string& source, const std::vector<double>& values) {
  auto& trail = trails_[source];
  trail.resize(std::max(trail.size(), values.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    trail[i].push_back(static_cast<float>(values[i]));
    if (trail[i].size() > kPoints) trail[i].pop_front();
  }
}

void Trails::add(const MonitorSample& sample) {
  std::set<std::string> now;
  for (const auto& [source, values] : kept_values(sample)) {
    put(source, values);
    now.insert(source);
  }
  if (trails_.size() > kMostSources)
    std::erase_if(trails_, [&](const auto& item) { return !now.contains(item.first); });
}

void Trails::begin_with(const std::vector<HistorySeries>& series) {
  for (const HistorySeries& one : series) {
    const size_t from = one.times.size() > kPoints ? one.times.size() - kPoints : 0;
    for (size_t i = from; i < one.times.size(); ++i) {
      std::vector<double> values;
      for (const auto& column : one.values) values.push_back(column[i]);
      put(one.source, values);
    }
  }
}

const std::deque<float>& Trails::of(const std::string& source, size_t value) const {
  static const std::deque<float> none;
  const auto found = trails_.find(source);
  return found == trails_.end() || value >= found->second.size() ? none : found->second[value];
}

std::string sparkline(const std::deque<float>& points, int width, bool utf8, float low, float high) {
  static constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr char kMarks[] = "_.-=+*%#";
  if (width <= 0) return "";
  const size_t count = std::min(points.size(), static_cast<size_t>(width));
  const auto begin = points.end() - static_cast<ptrdiff_t>(count);
  if (std::isnan(low) || std::isnan(high)) {
    float least = std::numeric_limits<float>::infinity(), most = -least;
    for (auto at = begin; at != points.end(); ++at)
      if (std::isfinite(*at)) least = std::min(least, *at), most = std::max(most, *at);
    if (std::isnan(low)) low = least;
    if (std::isnan(high)) high = most;
  }
  std::string text(static_cast<size_t>(width) - count, ' ');
  for (auto at = begin; at != points.end(); ++at) {
    if (!std::isfinite(*at)) {
      text += ' ';
      continue;
    }
    const float part = high > low ? std::clamp((*at - low) / (high - low), 0.0f, 1.0f) : 0.5f;
    const int level = std::min(7, static_cast<int>(part * 8));
    if (utf8)
      text += kBlocks[level];
    else
      text += kMarks[level];
  }
  return text;
}

}  // namespace tandem
