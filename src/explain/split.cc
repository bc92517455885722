#include "explain/split.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace tandem {
namespace {

const GpuEvidence* gpu_of(const Evidence& evidence, const RankRow& row) {
  for (const GpuEvidence& gpu : evidence.gpus)
    if (row.gpu == gpu.index) return &gpu;
  return nullptr;
}

double launches_of(const RankRow& row, double work) {
  const RankTimes& t = row.times;
  if (row.on_gpu) return std::max(0.0, work - t.gpu_wait / t.steps);
  return std::min(work, t.operations_per_step() * t.operation);
}

// Waiting for a core lengthens whatever a worker does on one; where data comes from other threads, and in what asking
// for operations costs (a thread's own time), it is not contained. Then others wait for it.
void take_out_crowding(std::vector<StepSplit>& all, const Evidence& evidence) {
  std::vector<double> lost(all.size(), 0);
  for (size_t i = 0; i < all.size(); ++i) {
    StepSplit& s = all[i];
    std::vector<Part> parts{kUpdate, kOther, kUneven};
    if (!s.row->on_gpu)
      parts.push_back(kCompute);  // a thread that waits for its GPU may wait for a core too: the GPU does not
    if (evidence.loader_threads == 0) parts.push_back(kLoading);
    if (s.row->on_gpu) parts.push_back(kLaunches);
    double pool = 0;
    for (const Part part : parts) pool += s.seconds[part];
    lost[i] = std::min(s.row->times.delay / s.row->times.steps, pool);
    if (pool <= 0) continue;
    for (const Part part : parts) s.seconds[part] *= 1 - lost[i] / pool;
    s.seconds[kCrowded] = lost[i];
  }
  for (size_t i = 0; i < all.size(); ++i) {
    double others = 0;
    for (size_t k = 0; k < all.size(); ++k)
      if (k != i) others = std::max(others, lost[k]);
    // By turns each is late by its own; always late is who lost more than this one.
    const double by_turns = std::min(all[i].seconds[kUneven], others);
    const double always = std::min(all[i].seconds[kWaiting], std::max(0.0, others - lost[i]));
    all[i].seconds[kUneven] -= by_turns;
    all[i].seconds[kWaiting] -= always;
    all[i].seconds[kCrowded] += by_turns + always;
  }
}

}  // namespace

const char* part_name(Part part) {
  constexpr const char* kNames[] = {"compute",    "launches", "loader", "communication", "waiting", "uneven",
                                    "throttling", "crowded",  "update", "idle",          "other"};
  return kNames[part];
}

double StepSplit::total() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

std::vector<StepSplit> split(const Evidence& evidence) {
  std::vector<StepSplit> all;
  double transfer = std::numeric_limits<double>::infinity();
  size_t combining = 0;
  for (const RankRow& row : evidence.ranks) {
    if (row.shards == 0 || row.times.steps < 1) continue;
    ++combining;
    // Everybody leaves a sum at the same time: who came last spent only the transfer in it.
    transfer = std::min(transfer, std::max(0.0, row.times.combine - row.times.late) / row.times.steps);
  }
  for (const RankRow& row : evidence.ranks) {
    if (row.shards == 0 || row.times.steps < 1) continue;
    const RankTimes& t = row.times;
    const double n = t.steps, work = t.work / n, combine = t.combine / n;
    StepSplit s{.row = &row};
    s.busy = work + t.load / n;
    s.seconds[kLaunches] = launches_of(row, work);
    s.seconds[kCompute] = work - s.seconds[kLaunches];
    s.seconds[kLoading] = t.load / n;
    s.seconds[kUpdate] = t.update / n;
    if (combining > 1) {
      s.seconds[kCommunication] = std::min(combine, transfer);
      s.seconds[kWaiting] = combine - s.seconds[kCommunication];
    }
    s.seconds[kOther] = std::max(0.0, t.step / n - s.total());
    all.push_back(s);
  }
  if (all.empty()) return all;

  const auto slowest =
      std::max_element(all.begin(), all.end(), [](const StepSplit& a, const StepSplit& b) { return a.busy < b.busy; });
  for (StepSplit& s : all) {  // whoever has less to do waits each time; the rest of the waiting is by turns
    const double each_time = std::min(s.seconds[kWaiting], slowest->busy - s.busy);
    s.seconds[kUneven] = s.seconds[kWaiting] - each_time;
    s.seconds[kWaiting] = each_time;
  }
  take_out_crowding(all, evidence);
  double lost_by_slowest = 0;
  for (StepSplit& s : all) {
    const GpuEvidence* gpu = gpu_of(evidence, *s.row);
    if (!gpu) continue;
    const double lost = s.seconds[kCompute] * gpu->throttled * std::clamp(1 - gpu->clock, 0.0, 1.0);
    s.seconds[kCompute] -= lost;
    s.seconds[kThrottled] += lost;
    if (&s == &*slowest) lost_by_slowest = lost;
  }
  for (StepSplit& s : all) {  // what others wait for it is the same loss once more
    if (&s == &*slowest) continue;
    const double by_it = std::min(s.seconds[kWaiting], lost_by_slowest);
    s.seconds[kWaiting] -= by_it;
    s.seconds[kThrottled] += by_it;
  }
  return all;
}

}  // namespace tandem
