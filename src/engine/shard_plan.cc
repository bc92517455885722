#include "engine/shard_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "config/devices.h"

namespace tandem {

ShardPlan ShardPlan::balance(int shards, std::span<const double> speeds) {
  const int workers = static_cast<int>(speeds.size());
  check_workers(workers, shards);
  std::vector<int> count(workers, 1);
  for (int given = workers; given < shards; ++given) {
    int best = 0;
    for (int w = 1; w < workers; ++w)
      if ((count[w] + 1) / speeds[w] < (count[best] + 1) / speeds[best]) best = w;
    ++count[best];
  }
  ShardPlan plan;
  double slowest = 0;
  for (int w = 0, at = 0; w < workers; ++w) {
    plan.ranges_.push_back({at, at + count[w]});
    at += count[w];
    slowest = std::max(slowest, count[w] / speeds[w]);
  }
  plan.efficiency_ = shards / std::accumulate(speeds.begin(), speeds.end(), 0.0) / slowest;
  return plan;
}

std::string ShardPlan::text() const {
  std::string counts;
  for (const ShardRange& range : ranges_) counts += fmt::format(" {}", range.size());
  return fmt::format("{} shards on {} worker{}:{}", ranges_.back().last, workers(), workers() == 1 ? "" : "s", counts);
}

}  // namespace tandem
