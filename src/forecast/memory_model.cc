#include "forecast/memory_model.h"

#include <algorithm>
#include <limits>

#include "base/errors.h"
#include "config/gpu_memory.h"
#include "fleet/snapshot_pace.h"
#include "reduce/sum_tree.h"

namespace tandem {
namespace {

constexpr double kMargin = .03, kMarginBytes = 4 << 20;
constexpr double kRoom = .06;  // for a shard that moves; with the margin it stays well below 15 %

// Two buffers take turns; a third is used only while a checkpoint is slow to reach the disk. A run that ends before its
// first snapshot is worth it has the one at its end only.
double copies(double bytes, double seconds) {
  return seconds < snapshot_interval(guessed_snapshot_seconds(static_cast<uint64_t>(bytes))) ? 1 : 2;
}

// The whole subtrees among so many shards: a pass leaves a vector for each. As workers with as many shards each hold
// them.
int most_subtrees(const SumTree& tree, int held) {
  size_t most = 1;
  for (int first = 0; first + held <= tree.shards(); first += std::max(held, 1))
    most = std::max(most, tree.cover(first, first + held).size());
  return static_cast<int>(most);
}

// Vectors that wait while shards are added up one after the other: one for each level.
int levels_of(const SumTree& tree) {
  int most = 0;
  for (int shard = 0; shard < tree.shards(); ++shard) {
    int levels = 0;
    for (int node = tree.leaf(shard); node != tree.root(); node = tree.node(node).parent) ++levels;
    most = std::max(most, levels);
  }
  return most;
}

double snapshots_of(const JobShape& job, double shards, double held, double workers, double seconds) {
  return copies(job.replicated_bytes() + shards * job.shard_bytes, seconds) *
         (job.replicated_bytes() / workers + held * job.shard_bytes);
}

// As if it had gone on for so long: a trial knows how many it took.
double seconds_of(const Trial& trial) {
  if (trial.snapshots == 0) return static_cast<double>(trial.steps) * trial.step_seconds;
  return trial.snapshots == 1 ? 0 : std::numeric_limits<double>::infinity();
}

// Between measured points a line, below the first one its value, beyond the last one the steepest line.
double on_line(const std::vector<std::pair<double, double>>& points, double x) {
  if (x <= points.front().first) return points.front().second;
  if (points.size() == 1) return points[0].second * x / points[0].first;
  double steepest = 0;
  for (size_t i = 1; i < points.size(); ++i) {
    const auto& [batch, bytes] = points[i];
    const auto& [before, less] = points[i - 1];
    const double slope = std::max(0.0, (bytes - less) / (batch - before));
    if (x <= batch) return std::max(less, std::max(less, bytes) - slope * (batch - x));
    steepest = std::max(steepest, slope);
  }
  return points.back().second + steepest * (x - points.back().first);
}

}  // namespace

MemoryModel::MemoryModel(const Calibration& calibration, const std::string& precision, bool gpu) : gpu_(gpu) {
  const auto fits = [&](const Trial& trial) {
    return trial.precision == precision && trial.memory_bytes > 0 && (trial.devices[0].model != "cpu") == gpu;
  };
  for (const Trial& trial : calibration.trials) {
    if (!fits(trial) || trial.devices.size() != 1) continue;
    const JobShape& job = trial.shape;
    shards_ = trial.shards;
    base_ = std::max(base_, trial.memory_start - job.bytes_on_device(gpu));
    double rest = trial.memory_bytes - std::max(trial.memory_start, job.bytes_on_device(gpu));
    rest -= static_cast<double>(trial.shards) * job.shard_bytes;
    const auto all = static_cast<double>(trial.shards);
    if (!gpu) rest -= snapshots_of(job, all, all, 1, seconds_of(trial));
    const auto batch = static_cast<double>(trial.batch);
    rest_.emplace_back(batch, std::max(rest, 0.0));
    const auto [seen, first] = in_pass_.emplace(batch, trial.in_pass);
    if (!first) seen->second = std::min(seen->second, trial.in_pass);
  }
  if (rest_.empty())
    throw ConfigError("no worker's memory was measured", "a forecast scales what one worker was seen to take",
                      "run `tandem plan` with --calibrate");
  std::sort(rest_.begin(), rest_.end());
  // Two trials at one batch: the larger.
  for (size_t i = 1; i < rest_.size();)
    if (rest_[i].first == rest_[i - 1].first)
      rest_.erase(rest_.begin() + static_cast<long>(i) - 1);
    else
      ++i;
  for (const Trial& trial : calibration.trials) {
    if (!fits(trial) || trial.devices.size() < 2) continue;
    const int workers = static_cast<int>(trial.devices.size());
    const int64_t dealt = (trial.shards + workers - 1) / workers;
    const int64_t held = trial.per_device ? 1 : std::max(dealt, trial.most_held);
    const auto [seen, first] = held_.emplace(workers, held);
    if (!first) seen->second = std::min(seen->second, held);
    const double seconds = seconds_of(trial);
    const double forecast = worker(trial.shape, trial.batch, static_cast<int>(held), workers, seconds).total() -
                            (1 + kMargin) * more(workers);
    // Below 0 where the model of one worker asks for too much: parts of its rest go with the shards it holds.
    const double extra = ((trial.memory_bytes + kMarginBytes) * (1 + kMargin) - forecast) / (1 + kMargin);
    const auto [known, is_new] = several_.emplace(workers, extra);
    if (!is_new) known->second = std::max(known->second, extra);
  }
}

// Between numbers that were tried: as the neighbour that needs more.
double MemoryModel::more(int workers) const {
  if (workers < 2 || several_.empty()) return 0;
  const auto above = several_.lower_bound(workers);
  if (above == several_.end()) return several_.rbegin()->second;
  if (above->first == workers || above == several_.begin()) return above->second;
  return std::max(above->second, std::prev(above)->second);
}

// A pass over k of S shards takes what a pass over all of them takes at k / S of the batch. What the batch does not
// change stays: vectors that wait to be added up, the libraries' work memory.
double MemoryModel::at_work(double batch, int held, double vector_bytes) const {
  const int64_t tried = in_pass(batch);
  if (tried <= 1) return on_line(rest_, batch) * side_by_side(held, vector_bytes);
  if (held >= shards_) return on_line(rest_, batch);
  const int64_t passes = (shards_ + tried - 1) / tried;
  const int64_t fit = passes == 1 ? shards_ : (shards_ + passes - 2) / (passes - 1) - 1;  // with one more, fewer passes
  const SumTree tree(static_cast<int>(shards_));
  const double share = static_cast<double>(std::min<int64_t>(held, fit)) / static_cast<double>(tried);
  return in_smaller_pass(batch * share, levels_of(tree) * vector_bytes) +
         (most_subtrees(tree, held) - 1) * vector_bytes;
}

// Shards that run one after the other use the same memory.
double MemoryModel::side_by_side(int held, double vector_bytes) const {
  const auto vector = static_cast<int64_t>(vector_bytes);
  return static_cast<double>(most_side_by_side(held, vector)) / static_cast<double>(most_side_by_side(shards_, vector));
}

// Below the smallest batch that was tried, the line goes on as flat as any part of it; from one trial alone, down to
// the least.
double MemoryModel::in_smaller_pass(double batch, double least) const {
  const auto [smallest, bytes] = rest_.front();
  if (batch >= smallest) return on_line(rest_, batch);
  least = std::min(least, bytes);
  double slope = (bytes - least) / smallest;
  for (size_t i = 1; i < rest_.size(); ++i)
    slope = std::min(slope, (rest_[i].second - rest_[i - 1].second) / (rest_[i].first - rest_[i - 1].first));
  return std::max(least, bytes - std::max(slope, 0.0) * (smallest - batch));
}

// As the next larger batch that was tried: never more than there will be.
int64_t MemoryModel::in_pass(double batch) const {
  const auto above = in_pass_.lower_bound(batch);
  return above == in_pass_.end() ? in_pass_.rbegin()->second : above->second;
}

MemoryForecast MemoryModel::most(const JobShape& job, int64_t batch, const std::vector<int>& shards,
                                 double seconds) const {
  const int workers = static_cast<int>(shards.size());
  int held = shards.empty() ? 0 : *std::ranges::max_element(shards);
  if (const auto seen = held_.find(workers); seen != held_.end() && held > 1)
    held = std::max(held, static_cast<int>(seen->second));
  MemoryForecast forecast = worker(job, batch, held, workers, seconds);
  if (gpu_ || workers < 2 || held >= shards_) return forecast;
  const double with_another = worker(job, batch, held + 1, workers, seconds).total();
  forecast.overhead += std::min(with_another - forecast.total(), kRoom * forecast.total());
  return forecast;
}

MemoryForecast MemoryModel::worker(const JobShape& job, int64_t batch, int held, int workers, double seconds) const {
  MemoryForecast forecast;
  forecast.weights = job.weights_bytes;
  forecast.optimizer = job.optimizer_bytes;
  forecast.data = held * job.shard_bytes;
  const double vector = 4 * job.combine_floats;
  const auto rows = static_cast<double>(batch);
  const double rest = gpu_ ? at_work(rows, held, vector) : on_line(rest_, rows);
  forecast.gradients = std::min(rest, vector);
  forecast.activations = rest - forecast.gradients;
  if (gpu_ && workers > 1) forecast.gradients += vector;  // what all of them together have found
  if (!gpu_) forecast.snapshots = snapshots_of(job, static_cast<double>(shards_), held, workers, seconds);
  forecast.overhead = base_ + job.other_on_device(gpu_) + more(workers);
  forecast.overhead += kMargin * forecast.total() + kMarginBytes;
  return forecast;
}

}  // namespace tandem
