#include "telemetry/training_stats.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {
constexpr int64_t kEntries = 100;  // aimed at where the number of steps is known
constexpr size_t kMostEntries = 200;

nlohmann::json finite_or_null(double value) { return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(); }
}  // namespace

void TrainingStats::Mean::add(double value) {
  if (!std::isfinite(value)) return;
  sum += value;
  ++count;
}
nlohmann::json TrainingStats::Mean::json() const {
  return count > 0 ? finite_or_null(sum / static_cast<double>(count)) : nlohmann::json();
}

void TrainingStats::add_named(NamedMeans& means, const std::string& name, const Mean& value, size_t hint) {
  if (hint < means.size() && means[hint].first == name) return means[hint].second.add(value);
  for (auto& [known, mean] : means)
    if (known == name) return mean.add(value);
  means.emplace_back(name, value);
}

void TrainingStats::Entry::add(const StepRecord& record) {
  last_step = record.step;
  ++steps;
  skipped += record.skipped;
  loss.add(record.loss);
  if (!std::isnan(record.learning_rate)) learning_rate = record.learning_rate;
  samples += record.samples;
  seconds += record.seconds;
  const auto add_all = [](NamedMeans& means, const NamedValues& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      Mean one;
      one.add(values[i].second);
      add_named(means, values[i].first, one, i);
    }
  };
  add_all(metrics, record.metrics);
  add_all(phases, record.phase_seconds);
}

void TrainingStats::Entry::add(const Entry& other) {
  last_step = other.last_step;
  steps += other.steps;
  skipped += other.skipped;
  loss.add(other.loss);
  if (!std::isnan(other.learning_rate)) learning_rate = other.learning_rate;
  samples += other.samples;
  seconds += other.seconds;
  for (const auto& [name, mean] : other.metrics) add_named(metrics, name, mean, 0);
  for (const auto& [name, mean] : other.phases) add_named(phases, name, mean, 0);
}

TrainingStats::TrainingStats(int64_t total_steps)
    : steps_per_entry_(total_steps > 0 ? (total_steps + kEntries - 1) / kEntries : 1), growing_(total_steps <= 0) {}

int64_t TrainingStats::index_of(const StepRecord& record) const {
  return record.epoch >= 0 ? record.epoch : (std::max<int64_t>(record.step, 1) - 1) / steps_per_entry_;
}

void TrainingStats::add(const StepRecord& record) {
  auto& entries = jobs_[record.job].entries;
  const int64_t index = index_of(record);
  if (entries.empty() || entries.back().index != index) {
    ++begun_;
    entries.emplace_back().index = index;
  }
  entries.back().add(record);
  if (!growing_ || record.epoch >= 0 || entries.size() < kMostEntries) return;
  steps_per_entry_ *= 2;
  for (auto& [name, job] : jobs_) {
    std::vector<Entry> merged;
    for (const Entry& entry : job.entries) {
      const int64_t half = entry.index / 2;
      if (!merged.empty() && merged.back().index == half)
        merged.back().add(entry);
      else
        merged.emplace_back(entry).index = half;
    }
    job.entries = std::move(merged);
  }
}

size_t TrainingStats::entries() const {
  size_t count = 0;
  for (const auto& [name, job] : jobs_) count += job.entries.size();
  return count;
}

bool TrainingStats::changed_since(size_t& seen) const { return std::exchange(seen, begun_) != begun_; }

nlohmann::json TrainingStats::entry_json(const Entry& entry, const std::string& job) {
  nlohmann::json out = {
      {"iteration", entry.index},
      {"step", entry.last_step},
      {"steps", entry.steps},
      {"loss", entry.loss.json()},
      {"learning_rate", finite_or_null(entry.learning_rate)},
      {"samples", finite_or_null(entry.samples)},
      {"samples_per_s", entry.seconds > 0 ? finite_or_null(entry.samples / entry.seconds) : nlohmann::json()},
      {"seconds", finite_or_null(entry.seconds)},
      {"skipped", entry.skipped},
      {"training_losses", {{"total_loss", entry.loss.json()}}},
      {"metrics", nlohmann::json::object()},
      {"phases", nlohmann::json::object()},
  };
  if (!job.empty()) out["job"] = job;
  for (const auto& [name, mean] : entry.metrics) {
    const size_t slash = name.find('/');
    const std::string group = slash == std::string::npos ? "metrics" : name.substr(0, slash);
    const bool is_group = !out.contains(group) || out[group].is_object();  // "loss/x" must not overwrite the loss
    (is_group ? out[group] : out["metrics"])[is_group && slash != std::string::npos ? name.substr(slash + 1) : name] =
        mean.json();
  }
  for (const auto& [name, mean] : entry.phases) out["phases"][name] = finite_or_null(mean.sum);
  return out;
}

nlohmann::json TrainingStats::to_json() const {
  nlohmann::json out = nlohmann::json::array();
  for (const auto& [name, job] : jobs_)
    for (const Entry& entry : job.entries) out.push_back(entry_json(entry, name));
  return out;
}

}  // namespace tandem
