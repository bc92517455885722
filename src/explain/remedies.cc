#include "explain/remedies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/shell_word.h"

namespace tandem {
namespace {

constexpr int64_t kMostThreads = 64;
constexpr double kMadePerLook = 8;  // batches, of which one is looked at (engine/loader.h)
constexpr const char* kWhoIsBusy = "ps -eo pid,user,pcpu,args --sort=-pcpu | head";
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

bool on_gpus(const Evidence& evidence) {
  return std::any_of(evidence.ranks.begin(), evidence.ranks.end(), [](const RankRow& row) { return row.on_gpu; });
}

// So many times the batch that what does not grow with it is 30 % of the step or less; a power of two, at most 64.
int64_t larger_batch(const Evidence& evidence, double fixed) {
  const double wanted = fixed * 0.7 / (0.3 * std::max(0.02, 1 - fixed));
  int64_t times = 2;
  while (static_cast<double>(times) < wanted && times < 64) times *= 2;
  return std::max<int64_t>(evidence.batch, 1) * times;
}

// The flag for about this many shards: as many as the batch divides by, or another batch with it.
std::string shards_flag(const Evidence& evidence, int64_t wanted) {
  const int64_t rows = evidence.batch / evidence.accumulation;
  for (int64_t shards = wanted; shards <= std::min(rows, 4 * wanted); ++shards)
    if (rows % shards == 0) return fmt::format("--set shards={}", shards);
  const int64_t unit = wanted * evidence.accumulation;
  return fmt::format("--set shards={} --batch-size {}", wanted, (evidence.batch + unit - 1) / unit * unit);
}

std::string folder(const Evidence& evidence) {
  return shell_word(evidence.dir.empty()            ? evidence.run
                    : evidence.dir.starts_with('-') ? "./" + evidence.dir
                                                    : evidence.dir);
}

// A new run with all of this one's settings but these.
std::string anew(const Evidence& evidence, const std::string& flags) {
  const std::string recipe = evidence.dir.empty() ? evidence.recipe : evidence.dir + "/recipe.toml";
  return fmt::format("{} train {} {}", evidence.program, shell_word(recipe.starts_with('-') ? "./" + recipe : recipe),
                     flags);
}

// The same run with other settings of its running. One that is done has nothing to go on with.
std::string go_on(const Evidence& evidence, const std::string& flags) {
  if (evidence.done) return anew(evidence, flags);
  return fmt::format("{} resume {} {}", evidence.program, folder(evidence), flags);
}

std::string when(const Evidence& evidence) {
  return evidence.done   ? "; this run is done: for the next one"
         : evidence.live ? "; stop it first (Ctrl-C): it goes on from there"
                         : "";
}

// Those that the run is on but this rank, and more of them. "cpu:2" is a number of workers, "cuda:2" a GPU.
std::string devices_but(const Evidence& evidence, int rank, const std::string& more = "") {
  int cores = 0;
  std::string gpus;
  for (const RankRow& row : evidence.ranks) {
    if (row.rank == rank) continue;
    if (row.on_gpu)
      gpus += (gpus.empty() ? "" : ",") + row.device;
    else
      ++cores;
  }
  std::string all = cores > 0 ? fmt::format("cpu:{}", cores) : "";
  for (const std::string& part : {gpus, more})
    if (!part.empty()) all += (all.empty() ? "" : ",") + part;
  return all;
}

void loader(SlowDown& f, const Evidence& evidence, const Explanation& e) {
  const double loading = e.share("loader");
  // Made at a rate of (load + work) a step by the threads there are; wanted in `work` alone.
  const double rest = std::max(0.02, 1 - loading);
  const auto now = std::max<int64_t>(evidence.loader_threads, 0);
  f.why =
      fmt::format("batches are made more slowly than they are used, by {} thread{} a worker", now, now == 1 ? "" : "s");
  if (loading * removable_loading(evidence, loading) < kWorthNaming) {
    f.why += ", and no core is free for more of them";
    f.remedy = "prepare the data beforehand, so that a batch is less work, or use a machine with more cores";
    return;
  }
  const auto wanted = now == 0 ? static_cast<int64_t>(std::ceil(loading / rest)) + 1
                               : static_cast<int64_t>(std::ceil(static_cast<double>(now) / rest));
  const int64_t threads = std::clamp<int64_t>(wanted, now + 1, std::max<int64_t>(now + 1, kMostThreads));
  f.remedy = "more loader threads (no bit changes)" + when(evidence);
  if (wanted > threads) f.remedy += fmt::format("; {} would be needed: prepare the data beforehand", wanted);
  // A thread more than there are batches asked for ahead has nothing to do.
  f.command = go_on(
      evidence, fmt::format("--loader-threads {}", threads) + (evidence.prefetch >= 0 && threads > evidence.prefetch
                                                                   ? fmt::format(" --set loader.prefetch={}", threads)
                                                                   : ""));
}

// Seconds of a step if the shards of this rank were shared out to the others, whole ones, each to who is done first.
double step_without(const Evidence& evidence, int rank) {
  std::vector<std::pair<double, double>> others;  // seconds a shard, until done
  for (const RankRow& row : evidence.ranks)
    if (row.rank != rank && row.shards > 0 && row.times.steps > 0)
      others.emplace_back((row.times.work + row.times.load) / (row.times.steps * row.shards), 0);
  if (others.empty()) return std::numeric_limits<double>::infinity();
  for (int64_t shard = 0; shard < evidence.shards; ++shard) {
    auto& next = *std::min_element(others.begin(), others.end(), [](const auto& a, const auto& b) {
      return a.first + a.second < b.first + b.second;
    });
    next.second += next.first;
  }
  return std::max_element(others.begin(), others.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->second;
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
  const bool fine = slow && slow->shards > 1 && evidence.shards >= 4 * static_cast<int64_t>(workers);
  if (fine) f.why = fmt::format("{} was slow of late; shards move to the others when that lasts", slow->name());
  const double now = slow && slow->times.steps > 0 ? (slow->times.work + slow->times.load) / slow->times.steps : 0;
  if (step_without(evidence, f.who) < (1 - kWorthNaming) * now) {
    f.remedy =
        "leave it out: without it the others are faster (no bit changes)" + (evidence.live ? "" : when(evidence));
    f.command = evidence.live ? fmt::format("{} leave {} --rank {}", evidence.program, folder(evidence), f.who)
                              : go_on(evidence, "--devices " + devices_but(evidence, f.who));
  } else if (fine) {
    f.remedy = "look again in a minute; if it stays, find out what slows it down";
    f.command = fmt::format("{} explain {}", evidence.program, folder(evidence));
  } else {
    f.remedy = fmt::format("smaller shards, which follow speed more finely; {}", kAnother);
    f.command = anew(evidence,
                     shards_flag(evidence, std::max<int64_t>(evidence.shards * 4, static_cast<int64_t>(workers) * 8)));
  }
}

void crowded(SlowDown& f, const Evidence& evidence) {
  if (crowd_of(evidence) == Crowd::kWorkers) {
    f.why = fmt::format("{} workers share {} cores", workers_of(evidence), evidence.cores);
    f.remedy = "one worker a core (no bit changes)" + when(evidence);
    f.command = go_on(evidence, fmt::format("--devices cpu:{}", evidence.cores));
    return;
  }
  if (evidence.others.empty()) {
    f.why =
        "the workers were ready to run and had no core; who had it can't be seen from here (other machines on this "
        "host, a limit of its container, or programs that ended quickly)";
    f.remedy = "look at what else uses this machine";
    f.command = kWhoIsBusy;
    return;
  }
  std::vector<std::string> names;
  std::string pids;
  for (const OtherProgram& other : evidence.others) {
    names.push_back(fmt::format("{} (process {}) took {:.1f} cores", other.name, other.pid, other.cores));
    pids += fmt::format(" {}", other.pid);
  }
  f.why = fmt::format("{}", fmt::join(names, ", "));
  f.remedy = "end it, let it run elsewhere, or give it what is left over";
  f.command = evidence.live && evidence.others_now ? "renice -n 19 -p" + pids : kWhoIsBusy;
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
      f.command = evidence.program + " guard status";
    } else if (reason == "power_brake") {
      f.remedy = "the power supply holds it back: check its cables and what else hangs on it";
      f.command = evidence.program + " guard status";
    } else {
      f.remedy =
          "it is too hot: clean it, give it air, or let the guard raise its fans and lower its power" + when(evidence);
      f.command = go_on(evidence, "--power 80%");
    }
  }
}

void launches(SlowDown& f, const Evidence& evidence) {
  const size_t workers = std::max<size_t>(1, workers_of(evidence));
  const int64_t micro_batches = evidence.shards * evidence.accumulation / static_cast<int64_t>(workers);
  double operations = 0, cost = 0;
  for (const RankRow& row : evidence.ranks) {
    operations = std::max(operations, row.times.operations_per_step());
    cost = std::max(cost, row.times.operation);
  }
  if (on_gpus(evidence))
    f.why = "the GPU waits for the host between its kernels";
  else
    f.why =
        fmt::format("a step asks for {:.0f} operations at {:.3g} us each, whatever is in them", operations, cost * 1e6);
  if (micro_batches > 1 && evidence.accumulation > 1) {
    f.remedy = fmt::format("fewer micro-batches: each worker runs {} a step; {}", micro_batches, kAnother);
    f.command = anew(evidence, "--accumulation 1");
  } else if (micro_batches > 1) {
    f.remedy = fmt::format("fewer, larger shards: each worker runs {} a step; {}", micro_batches, kAnother);
    f.command = anew(evidence, shards_flag(evidence, static_cast<int64_t>(workers)));
  } else if (on_gpus(evidence)) {
    f.remedy = fmt::format(
        "let the step be one CUDA graph (no TANDEM_GRAPHS=off, no CUDA_LAUNCH_BLOCKING=1; the run's warnings say why "
        "it is not), or a larger batch{}",
        when(evidence));
    f.command = "env -u TANDEM_GRAPHS -u CUDA_LAUNCH_BLOCKING " + go_on(evidence, "");
    while (f.command.ends_with(' ')) f.command.pop_back();
  } else {
    f.remedy = fmt::format("a larger batch, or a model with fewer and larger operations; {}", kAnother);
    f.command = anew(evidence, fmt::format("--batch-size {}", larger_batch(evidence, f.share)));
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
      const auto all = static_cast<int64_t>(workers_of(evidence) + evidence.idle_gpus.size());
      f.command = anew(evidence, shards_flag(evidence, 8 * all) + " --devices " + devices_but(evidence, -1, devices));
      return;
    }
    if (!evidence.live) f.remedy += when(evidence);
    f.command = evidence.live ? fmt::format("{} join {} --devices {}", evidence.program, folder(evidence), devices)
                              : go_on(evidence, "--devices " + devices_but(evidence, -1, devices));
    return;
  }
  f.why = fmt::format("there are {} shards, and a shard is never split", evidence.shards);
  f.remedy = fmt::format("more shards; {}", kAnother);
  f.command = anew(evidence, shards_flag(evidence, 8 * static_cast<int64_t>(evidence.ranks.size())));
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
      f.command = anew(evidence, fmt::format("--batch-size {}", larger_batch(evidence, f.share)));
      return;
    case Cause::kSmallBatch:
      f.why = fmt::format("a step has {} rows for {} worker{}: launches, the update and the combine cost more",
                          evidence.batch, workers_of(evidence), workers_of(evidence) == 1 ? "" : "s");
      f.remedy = fmt::format(
          "a larger batch (and a rate that follows it: --set schedule.batch_scaling=linear --set "
          "schedule.base_batch={}); {}",
          evidence.batch, kAnother);
      f.command = anew(evidence, fmt::format("--batch-size {}", larger_batch(evidence, f.share)));
      return;
    case Cause::kJitter:
      f.why = "they have equal work and equal speed on average, but not in each step";
      f.remedy = "look at what else uses the machine";
      f.command = on_gpus(evidence) ? evidence.program + " gpus" : "ps -eo pid,user,pcpu,args --sort=-pcpu | head";
      return;
    case Cause::kCrowded:
      return crowded(f, evidence);
  }
}

double removable_loading(const Evidence& evidence, double loading) {
  double made = 0, asleep = 0;
  bool free_to_move = false;
  for (const RankRow& row : evidence.ranks) {
    made += row.times.made;
    asleep += row.times.asleep;
    free_to_move = free_to_move || !row.pinned;
  }
  if (made <= 0 || loading <= 0) return 1;  // of an older version: not known
  const double sleeps = std::clamp(asleep / made, 0.0, 1.0), works = loading * (1 - sleeps);
  const double cores = static_cast<double>(std::max<size_t>(1, workers_of(evidence)));
  const double room = !free_to_move ? 0 : evidence.idle_cores ? *evidence.idle_cores / cores : works;
  return sleeps + std::min(works, room) / loading;
}

Crowd crowd_of(const Evidence& evidence) {
  double others = 0, own = 0;  // cores
  for (const OtherProgram& other : evidence.others) others += other.cores;
  for (const RankRow& row : evidence.ranks) {
    const RankTimes& t = row.times;
    if (t.step <= 0) continue;
    own += std::max(0.0, t.step - t.load - t.combine - t.delay) / t.step;
    if (evidence.loader_threads > 0) own += kMadePerLook * std::max(0.0, t.made - t.asleep) / t.step;
  }
  if (evidence.cores <= 0 || others >= 0.25 * evidence.cores) return Crowd::kOthers;
  if (workers_of(evidence) > static_cast<size_t>(evidence.cores)) return Crowd::kWorkers;
  return own >= 0.75 * evidence.cores ? Crowd::kOwnLoaders : Crowd::kOthers;
}

std::string hint_for(const Evidence& evidence, const Explanation& e) {
  if (!e.enough || !on_gpus(evidence) || evidence.precision != "fp32" || e.share("compute") < 0.6) return "";
  return fmt::format(
      "the GPUs are busy; mixed precision may make them faster: {} "
      "(another experiment; docs/explain.md says where it paid)",
      anew(evidence, "--precision bf16"));
}

}  // namespace tandem
