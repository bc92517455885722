#include "monitor/machine_sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/clock.h"
#include "config/visible_gpus.h"
#include "hardware/cuda_needed.h"
#include "hardware/nvml.h"
#include "monitor/clean_text.h"
#include "telemetry/human.h"

namespace tandem {
namespace {

constexpr double kFindSeconds = 3;  // between looks for new runs, at least
constexpr double kFindShare =
    0.003;  // of a core, at most: a folder with thousands of runs is looked through less often
constexpr double kFactsSeconds = 60;  // between looks at what hardly changes
constexpr double kReopenSeconds = 30;
constexpr size_t kMostRuns = 64;

// The GPU that a worker is on, or has an instance of.
std::optional<int> gpu_of(const RankReading& rank, const std::vector<GpuFacts>& all) {
  for (size_t i = 0; i < all.size(); ++i) {
    const bool instance = std::any_of(all[i].mig.begin(), all[i].mig.end(),
                                      [&](const MigInstance& one) { return one.uuid == rank.uuid; });
    const bool here = rank.uuid.empty() ? rank.device == "cuda:" + std::to_string(all[i].index)
                                        : all[i].uuid == rank.uuid || instance;
    if (here) return static_cast<int>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string short_run_id(const std::string& id) {
  const size_t slash = id.find('/');
  const std::string head = id.substr(0, slash), rest = slash == std::string::npos ? "" : id.substr(slash);
  const size_t dash = head.rfind('-');
  return (dash == std::string::npos ? head : head.substr(dash + 1)) + rest;
}

bool RunReading::stalled() const {
  if (!since_step_s) return false;
  return alive() && *since_step_s > std::max(15.0, 10 * step_seconds.value_or(0));
}

std::string MonitorSample::owner_of(int64_t pid) const {
  for (const RunReading& run : runs) {
    for (const RankReading& rank : run.ranks)
      if (rank.pid == pid) return short_run_id(run.id) + " rank " + std::to_string(rank.rank);
  }
  return "";
}

MonitorSampler::MonitorSampler(MonitorSamplerOptions options)
    : options_(std::move(options)),
      nvml_(Nvml::open()),
      opened_at_(monotonic_seconds()),
      finder_(options_.roots, options_.find_processes) {}

MonitorSampler::~MonitorSampler() = default;

void MonitorSampler::warm_up() { meter_.read(); }

void MonitorSampler::find_runs(double unix_now) {
  std::map<std::filesystem::path, std::unique_ptr<RunWatch>> now;
  std::vector<FoundRun> found;
  if (options_.runs.empty()) {
    found = finder_.find(unix_now, options_.recent_seconds);
  } else {
    for (const auto& dir : options_.runs) found.push_back({dir, ""});
  }
  for (const FoundRun& run : found) {
    const auto known = watches_.find(run.dir);
    now[run.dir] = known != watches_.end() ? std::move(known->second) : std::make_unique<RunWatch>(run.dir, run.name);
  }
  watches_ = std::move(now);
}

// A GPU that fell off the bus reports nothing any more; its name is kept.
void MonitorSampler::read_facts() {
  std::vector<GpuFacts> before = std::exchange(facts_, nvml_->facts());
  for (GpuFacts& facts : facts_) {
    if (facts.name) facts.name = clean_text(*facts.name);
    if (facts.trouble.empty()) continue;
    for (GpuFacts& known : before)
      if (known.index == facts.index && known.name) {
        known.trouble = facts.trouble;
        facts = std::move(known);
        break;
      }
  }
  visible_ = visible_gpus(facts_, std::getenv("CUDA_VISIBLE_DEVICES"));
}

void MonitorSampler::read_gpus(MonitorSample& sample) {
  const double now = monotonic_seconds();
  // A driver that came later, or came back.
  if (!nvml_->status().ok() && nvml_->status().kind != NvmlStatus::Kind::kNoLibrary &&
      now - opened_at_ > kReopenSeconds) {
    nvml_ = Nvml::open();
    opened_at_ = now;
  }
  if (!nvml_->status().ok()) {
    sample.gpu_trouble = nvml_->status().words;
    return;
  }
  sample.driver = nvml_->driver_version().value_or("");
  if (now - facts_at_ > kFactsSeconds || static_cast<int>(facts_.size()) != nvml_->count()) {
    read_facts();
    facts_at_ = now;
  }
  sample.facts = facts_;
  sample.visible = visible_;
  if (const auto cuda = nvml_->cuda_version(); cuda && *cuda < kCudaNeeded && !facts_.empty())
    sample.driver_note = fmt::format("older than CUDA {}.{} needs", kCudaNeeded / 1000, kCudaNeeded % 1000 / 10);
  for (const GpuFacts& facts : facts_) {
    sample.gpus.push_back(nvml_->reading(facts.index));
    if (!sample.gpus.back().processes) continue;
    for (GpuProcess& process : *sample.gpus.back().processes)
      if (process.name) process.name = clean_text(*process.name);
  }
}

void MonitorSampler::read_runs(MonitorSample& sample) {
  const double now = monotonic_seconds();
  if (now >= find_at_) {
    const double before = thread_cpu_seconds();
    find_runs(sample.time);
    find_at_ = now + std::max(kFindSeconds, (thread_cpu_seconds() - before) / kFindShare);
  }
  for (const auto& [dir, watch] : watches_) {
    RunReading run = watch->read(sample.time, now, meter_);
    const bool recent = sample.time - watch->last_sign_of_life() < options_.recent_seconds;
    if (!run.alive() && !recent && options_.runs.empty()) continue;
    if (run.host.empty())
      for (RankReading& rank : run.ranks) rank.gpu = gpu_of(rank, sample.facts);
    sample.runs.push_back(std::move(run));
  }
  meter_.forget_unread();
  std::stable_sort(sample.runs.begin(), sample.runs.end(), [](const RunReading& a, const RunReading& b) {
    return a.alive() != b.alive() ? a.alive() : a.started > b.started;
  });
  if (sample.runs.size() > kMostRuns) {
    sample.runs_left_out = sample.runs.size() - kMostRuns;
    sample.runs.resize(kMostRuns);
  }
}

MonitorSample MonitorSampler::take() {
  MonitorSample sample;
  sample.time = unix_now();
  sample.host = meter_.read();
  read_gpus(sample);
  read_runs(sample);
  return sample;
}

}  // namespace tandem
