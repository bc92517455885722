#include "explain/remedies.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

constexpr const char* kAnother = "another batch or number of shards is another experiment: a new run, not a resume";

const RankRow* row_of(const Evidence& evidence, int rank) {
  for (const RankRow& row : evidence.ranks)
    if (row.rank == rank) return &row;
  return nullptr;
}

size_t workers_of(const Evidence& evidence) {
  return static_cast<size_t>(
      std::count_if(evidence.ranks.begin(), evidence.ranks.end(), [](const RankRow& row) { return row.shards > 0; }));
}

bool on_cards(const Evidence& evidence) {
  return std::any_of(evidence.ranks.begin(), evidence.ranks.end(), [](const RankRow& row) { return row.on_card; });
}

// So many times the batch that what does not grow with it is 30 % of the step or less; a power of two, at most 64.
int64_t larger_batch(const Evidence& evidence, double fixed) {
  const double wanted = fixed * 0.7 / (0.3 * std::max(0.02, 1 - fixed));
  int64_t times = 2;
  while (static_cast<double>(times) < wanted && times < 64) times *= 2;
  return std::max<int64_t>(evidence.batch, 1) * times;
}

void loader(SlowDown& f, const Evidence& evidence, const Explanation& e) {
  // Made at a rate of (load + work) a step by the threads there are; wanted in `work` alone.
  const double rest = std::max(0.02, 1 - e.share("loader"));
  const auto now = std::max<int64_t>(evidence.loader_threads, 0);
  const auto wanted = now == 0 ? static_cast<int64_t>(std::ceil(e.share("loader") / rest)) + 1
                               : static_cast<int64_t>(std::ceil(static_cast<double>(now) / rest));
  const int64_t most = evidence.cores > 0 ? std::max<int64_t>(2, 2 * evidence.cores) : 32;
  const int64_t threads = std::clamp<int64_t>(wanted, now + 1, std::max(now + 1, most));
  f.why =
      fmt::format("batches are made more slowly than they are used, by {} thread{} a worker", now, now == 1 ? "" : "s");
  f.remedy = "more loader threads (no bit changes)";
  if (wanted > threads)
    f.remedy +=
        fmt::format("; {} would be needed, more than the cores here serve: prepare the data beforehand", wanted);
  f.command = fmt::format("tandem resume {} --loader-threads {}", evidence.run, threads);
}

void imbalance(SlowDown& f, const Evidence& evidence) {
  const RankRow* slow = row_of(evidence, f.who);
  const size_t workers = workers_of(evidence);
  double fastest = 0, slowest = 0;  // shards a second
  for (const RankRow& row : evidence.ranks) {
    if (row.shards == 0 || row.times.work <= 0) continue;
    const double speed = row.shards * row.times.steps / row.times.work;
    fastest = std::max(fastest, speed);
    if (&row == slow) slowest = speed;
  }
  f.why = fmt::format(
      "{} has {} of {} shards and the speed of {:.0f} % of the fastest; whole shards can't be shared better",
      slow ? slow->name() : "one", slow ? slow->shards : 0, evidence.shards, fastest > 0 ? 100 * slowest / fastest : 0);
  if (slow && slow->shards > 1 && evidence.shards >= 4 * static_cast<int64_t>(workers))
    f.why = fmt::format("{} was slow of late; shards move to the others when that lasts", slow->name());
  // Alone, the others would have its shards on top: faster if it is slower than its share is worth.
  const double others = static_cast<double>(workers) - 1;
  if (slow && others > 0 && slowest > 0 && slowest < fastest * others / (others + 1) / 2) {
    f.remedy = "leave it out: without it the others are faster (no bit changes)";
    f.command = evidence.live ? fmt::format("tandem leave {} --rank {}", evidence.run, f.who)
                              : fmt::format("tandem resume {} --devices {}", evidence.run, [&] {
                                  std::string list;
                                  for (const RankRow& row : evidence.ranks)
                                    if (row.rank != f.who) list += (list.empty() ? "" : ",") + row.device;
                                  return list;
                                }());
    return;
  }
  f.remedy = fmt::format("smaller shards, which follow speed more finely; {}", kAnother);
  f.command = fmt::format("tandem train {} --set shards={}", evidence.recipe,
                          std::max<int64_t>(evidence.shards * 4, static_cast<int64_t>(workers) * 8));
}

void throttling(SlowDown& f, const Evidence& evidence) {
  const RankRow* row = row_of(evidence, f.who);
  const int gpu = row && row->gpu ? *row->gpu : 0;
  for (const GpuEvidence& one : evidence.gpus) {
    if (one.index != gpu || one.reasons.empty()) continue;
    const std::string& reason = one.reasons.front();
    f.why = fmt::format("its clock was at {:.0f} % in {:.0f} % of the readings", 100 * one.clock, 100 * one.throttled);
    if (reason == "power_cap") {
      f.remedy = "its power limit holds it back: raise it if the power supply and the cooling allow";
      f.command = "tandem guard status";
    } else if (reason == "power_brake") {
      f.remedy = "the power supply holds it back: check its cables and what else hangs on it";
      f.command = "tandem guard status";
    } else {
      f.remedy = "it is too hot: clean it, give it air, or let the guard raise its fans and lower its power";
      f.command = fmt::format("tandem resume {} --power 80%", evidence.run);
    }
  }
}

void launches(SlowDown& f, const Evidence& evidence) {
  const size_t workers = std::max<size_t>(1, workers_of(evidence));
  const int64_t pieces = evidence.shards * evidence.accumulation / static_cast<int64_t>(workers);
  double operations = 0, cost = 0;
  for (const RankRow& row : evidence.ranks) {
    operations = std::max(operations, row.times.operations_per_step());
    cost = std::max(cost, row.times.operation);
  }
  if (on_cards(evidence))
    f.why = "the card waits for the host between its kernels";
  else
    f.why =
        fmt::format("a step asks for {:.0f} operations at {:.3g} us each, whatever is in them", operations, cost * 1e6);
  if (pieces > 1 && evidence.accumulation > 1) {
    f.remedy = fmt::format("fewer pieces: each worker runs {} a step; {}", pieces, kAnother);
    f.command = fmt::format("tandem train {} --accumulation 1", evidence.recipe);
  } else if (pieces > 1) {
    f.remedy = fmt::format("fewer, larger shards: each worker runs {} a step; {}", pieces, kAnother);
    f.command = fmt::format("tandem train {} --set shards={}", evidence.recipe, workers);
  } else if (on_cards(evidence)) {
    f.remedy =
        "let the step be one CUDA graph (no TANDEM_GRAPHS=off, no CUDA_LAUNCH_BLOCKING=1; the run's warnings say why "
        "it is not), or a larger batch";
    f.command = fmt::format("env -u TANDEM_GRAPHS -u CUDA_LAUNCH_BLOCKING tandem resume {}", evidence.run);
  } else {
    f.remedy = fmt::format("a larger batch, or a model with fewer and larger operations; {}", kAnother);
    f.command = fmt::format("tandem train {} --batch-size {}", evidence.recipe, larger_batch(evidence, f.share));
  }
}

void idle(SlowDown& f, const Evidence& evidence) {
  std::string devices;
  for (const int gpu : evidence.idle_gpus) devices += fmt::format("{}cuda:{}", devices.empty() ? "" : ",", gpu);
  if (!devices.empty()) {
    f.why = "the run was not started on them, and nobody else uses them";
    f.remedy = "let them join (no bit changes)";
    if (static_cast<size_t>(evidence.shards) <= workers_of(evidence)) {
      f.remedy = fmt::format("there are {} shards, one a worker at least: with more of them others can join; {}",
                             evidence.shards, kAnother);
      f.command = fmt::format("tandem train {} --set shards={}", evidence.recipe,
                              8 * (workers_of(evidence) + evidence.idle_gpus.size()));
      return;
    }
    std::string all;
    for (const RankRow& row : evidence.ranks) all += (all.empty() ? "" : ",") + row.device;
    f.command = evidence.live ? fmt::format("tandem join {} --devices {}", evidence.run, devices)
                              : fmt::format("tandem resume {} --devices {},{}", evidence.run, all, devices);
    return;
  }
  f.why = fmt::format("there are {} shards, and a shard is never split", evidence.shards);
  f.remedy = fmt::format("more shards; {}", kAnother);
  f.command = fmt::format("tandem train {} --set shards={}", evidence.recipe, 8 * evidence.ranks.size());
}

}  // namespace

void add_remedy(SlowDown& f, const Evidence& evidence, const Explanation& e) {
  switch (f.cause) {
    case Cause::kIdle:
      return idle(f, evidence);
    case Cause::kThrottling:
      return throttling(f, evidence);
    case Cause::kImbalance:
      return imbalance(f, evidence);
    case Cause::kLoader:
      return loader(f, evidence, e);
    case Cause::kLaunches:
      return launches(f, evidence);
    case Cause::kCommunication:
      f.why = fmt::format("{} workers add up their gradients after every step, over a link that is slow for their size",
                          workers_of(evidence));
      f.remedy = fmt::format("more work between two meetings: a larger batch, or fewer workers; {}", kAnother);
      f.command = fmt::format("tandem train {} --batch-size {}", evidence.recipe, larger_batch(evidence, f.share));
      return;
    case Cause::kSmallBatch:
      f.why =
          fmt::format("a step has {} rows for {} worker{}: asking for operations, the update and the meeting cost more",
                      evidence.batch, workers_of(evidence), workers_of(evidence) == 1 ? "" : "s");
      f.remedy =
          fmt::format("a larger batch (and a rate that follows it: --set schedule.batch_scaling=linear); {}", kAnother);
      f.command = fmt::format("tandem train {} --batch-size {}", evidence.recipe, larger_batch(evidence, f.share));
      return;
    case Cause::kJitter: {
      const auto workers = static_cast<int>(workers_of(evidence));
      const bool crowded = !on_cards(evidence) && evidence.cores > 0 && workers > evidence.cores;
      f.why = crowded ? fmt::format("{} workers share {} cores", workers, evidence.cores)
                      : "they have equal work and equal speed on average, but not in each step: something else runs "
                        "beside them";
      f.remedy = crowded ? "one worker a core (no bit changes)" : "look at what else uses the machine";
      f.command = crowded ? fmt::format("tandem resume {} --devices cpu:{}", evidence.run, evidence.cores)
                          : (on_cards(evidence) ? "tandem gpus" : "");
      return;
    }
  }
}

std::string hint_for(const Evidence& evidence, const Explanation& e) {
  if (!e.enough || !on_cards(evidence) || evidence.precision != "fp32" || e.share("compute") < 0.6) return "";
  return fmt::format(
      "the cards are busy; mixed precision may make them faster: tandem train {} --precision bf16 "
      "(another experiment; docs/tuning.md tells where it paid)",
      evidence.recipe);
}

}  // namespace tandem
