#include "explain/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "explain/remedies.h"
#include "explain/split.h"

namespace tandem {
namespace {

constexpr double kEnoughSteps = 20, kSureSteps = 50;
constexpr double kHeatWorthNaming = 0.10;  // the GPU itself says that it is in trouble
// A combine that takes less is bound by latency, whatever the link: more work between combines is the remedy.
constexpr double kLatencySeconds = 1e-3;
// The same of a batch that is handed over from a loader's thread: no thread more would make it shorter.
constexpr double kHandOverSeconds = 0.5e-3;

int percent(double share) { return static_cast<int>(std::lround(100 * share)); }

class Judge {
 public:
  Judge(const Evidence& evidence, const std::vector<StepSplit>& splits, Explanation& out)
      : evidence_(evidence), splits_(splits), out_(out) {}

  void judge() {
    crowded();
    idle();
    throttling();
    imbalance();
    loader();
    const double combining = (share(kCommunication) + share(kUneven)) * out_.step_seconds;
    const bool latency = splits_.size() > 1 && combining < kLatencySeconds;
    fixed_costs(latency);
    if (!latency) communication();
    if (!latency) uneven();
    std::stable_sort(out_.findings.begin(), out_.findings.end(),
                     [](const SlowDown& a, const SlowDown& b) { return a.share > b.share; });
  }

 private:
  double share(Part part) const { return out_.share(part_name(part)); }
  // Of what the step would be on cores of its own: a crowd must not hide what is wrong besides.
  double own(Part part) const { return share(part) / std::max(0.05, 1 - share(kCrowded)); }
  void add(SlowDown finding, double worth) {
    finding.sure = finding.share >= 2 * worth && out_.steps >= kSureSteps;
    add_remedy(finding, evidence_, out_);
    out_.findings.push_back(std::move(finding));
  }

  void crowded() {
    if (share(kCrowded) < kWorthNaming) return;
    const Crowd crowd = crowd_of(evidence_);
    if (crowd == Crowd::kOwnLoaders) return;  // making batches takes the time: on which thread makes no difference
    add({.cause = Cause::kCrowded,
         .share = share(kCrowded),
         .text = fmt::format(
             "{}: {} % of each step waits for a core",
             crowd == Crowd::kWorkers ? "the workers take each other's cores" : "other programs take the cores",
             percent(share(kCrowded)))},
        kWorthNaming);
  }

  void idle() {
    std::vector<std::string> idle, busy;
    int who = -1;
    for (const RankRow& row : evidence_.ranks) {
      (row.shards == 0 ? idle : busy).push_back(row.name());
      if (row.shards == 0) who = row.rank;
    }
    for (const int gpu : evidence_.idle_gpus) idle.push_back(fmt::format("GPU {}", gpu));
    if (idle.empty() || busy.empty()) return;
    const double share = static_cast<double>(idle.size()) / static_cast<double>(idle.size() + busy.size());
    const std::string names = fmt::format("{}", fmt::join(idle, ", "));
    add({.cause = Cause::kIdle,
         .share = share,
         .who = who,
         .text = busy.size() == 1 ? fmt::format("only {} is busy; {} {} nothing to do", busy[0], names,
                                                idle.size() > 1 ? "have" : "has")
                                  : fmt::format("{} {} nothing to do", names, idle.size() > 1 ? "have" : "has")},
        kWorthNaming / 2);
  }

  void throttling() {
    const GpuEvidence* worst = nullptr;
    int who = -1;
    for (const StepSplit& s : splits_)
      for (const GpuEvidence& gpu : evidence_.gpus)
        if (s.row->gpu == gpu.index &&
            (!worst || gpu.throttled * (1 - gpu.clock) > worst->throttled * (1 - worst->clock)))
          worst = &gpu, who = s.row->rank;
    if (!worst || worst->reasons.empty()) return;
    const double worth = worst->reasons.front() == "power_cap" ? kWorthNaming : kHeatWorthNaming;
    if (own(kThrottled) < worth) return;
    add({.cause = Cause::kThrottling,
         .share = share(kThrottled),
         .who = who,
         .text = fmt::format("GPU {} is slowed down ({}): {} % of the step", worst->index,
                             fmt::join(worst->reasons, ", "), percent(share(kThrottled)))},
        worth);
  }

  void imbalance() {
    const auto by_busy = [](const StepSplit& a, const StepSplit& b) { return a.busy < b.busy; };
    const StepSplit& slowest = *std::max_element(splits_.begin(), splits_.end(), by_busy);
    const StepSplit& waits = *std::max_element(
        splits_.begin(), splits_.end(),
        [](const StepSplit& a, const StepSplit& b) { return a.seconds[kWaiting] < b.seconds[kWaiting]; });
    if (own(kWaiting) < kWorthNaming) return;
    const size_t waiting = static_cast<size_t>(std::count_if(splits_.begin(), splits_.end(), [&](const StepSplit& s) {
      return s.seconds[kWaiting] >= kWorthNaming * out_.step_seconds * (1 - share(kCrowded));
    }));
    add({.cause = Cause::kImbalance,
         .share = share(kWaiting),
         .who = slowest.row->rank,
         .text = fmt::format("{} for {} (up to {} % of each step)",
                             waiting > 1 ? fmt::format("{} workers wait", waiting) : waits.row->name() + " waits",
                             slowest.row->name(), percent(waits.seconds[kWaiting] / out_.step_seconds))},
        kWorthNaming);
  }

  bool handing_over() const {
    const int64_t micro_batches = evidence_.shards * evidence_.accumulation / static_cast<int64_t>(splits_.size());
    if (share(kLoading) * out_.step_seconds <
        kHandOverSeconds * static_cast<double>(std::max<int64_t>(micro_batches, 1)))
      return true;
    // In a crowd a hand-over takes as long as the loader's thread waits for a core.
    return share(kCrowded) >= kWorthNaming && loading_that_could_go() < kWorthNaming;
  }
  double loading_that_could_go() const { return own(kLoading) * removable_loading(evidence_, share(kLoading)); }

  void loader() {
    if (handing_over()) return;
    if (loading_that_could_go() < kWorthNaming && own(kLoading) < kWorthMoreWork) return;
    add({.cause = Cause::kLoader,
         .share = share(kLoading),
         .text = fmt::format("the loader is too slow: {} % of each step waits for data", percent(share(kLoading)))},
        kWorthNaming);
  }

  void communication() {
    if (own(kCommunication) < kWorthNaming) return;
    add({.cause = Cause::kCommunication,
         .share = share(kCommunication),
         .text = fmt::format("communication takes {} % of each step ({:.3g} ms)", percent(share(kCommunication)),
                             share(kCommunication) * out_.step_seconds * 1e3)},
        kWorthNaming);
  }

  void uneven() {
    if (own(kUneven) < kWorthNaming) return;
    add({.cause = Cause::kJitter,
         .share = share(kUneven),
         .text = fmt::format("the workers are late by turns: {} % of each step", percent(share(kUneven)))},
        kWorthNaming);
  }

  // What no batch changes: launches, the update, combines that are all latency, the rest of the step.
  void fixed_costs(bool latency) {
    const double launches = own(kLaunches);
    double fixed = launches + own(kUpdate) + own(kOther);
    const double by_piece = launches + (handing_over() ? own(kLoading) : 0);
    fixed += by_piece - launches;
    if (latency) fixed += own(kCommunication) + own(kUneven);
    const int64_t rows = evidence_.batch / static_cast<int64_t>(splits_.size());
    // Where a step is batches alone, a GEMM of a few rows takes as long as one of a tile: it reads the same weights.
    const bool batches = own(kLoading) > 0;
    if (batches && rows < kTileRows)
      fixed += own(kCompute) * (1 - static_cast<double>(rows) / static_cast<double>(kTileRows));
    if (fixed < kWorthMoreWork) return;
    if (by_piece >= fixed / 2 && rows >= kTileRows) {
      if (launches < kWorthNaming) return;
      add({.cause = Cause::kLaunches,
           .share = share(kLaunches),
           .text = fmt::format("bound by launches: {} % of each step asks for operations instead of computing",
                               percent(share(kLaunches)))},
          kWorthMoreWork);
    } else {
      add({.cause = Cause::kSmallBatch,
           .share = fixed * (1 - share(kCrowded)),
           .text = fmt::format("the batch is too small for {}: {} % of each step does not depend on it",
                               splits_.size() > 1 ? fmt::format("{} workers", splits_.size()) : splits_[0].row->name(),
                               percent(fixed * (1 - share(kCrowded))))},
          kWorthMoreWork);
    }
  }

  const Evidence& evidence_;
  const std::vector<StepSplit>& splits_;
  Explanation& out_;
};

}  // namespace

const char* cause_name(Cause cause) {
  constexpr const char* kNames[] = {"idle",     "throttling",  "imbalance", "communication", "loader",
                                    "launches", "small-batch", "uneven",    "crowded"};
  return kNames[static_cast<int>(cause)];
}

double Explanation::share(const std::string& name) const {
  for (const auto& [part, value] : shares)
    if (part == name) return value;
  return 0;
}

std::string Explanation::verdict() const {
  if (!enough) return fmt::format("too few steps to judge ({:.0f})", steps);
  if (!findings.empty()) return findings.front().text;
  return fmt::format("healthy: {} % of each step is computing", percent(share("compute")));
}

Explanation explain(const Evidence& evidence) {
  Explanation out;
  const std::vector<StepSplit> splits = split(evidence);
  size_t idle = 0;
  for (const RankRow& row : evidence.ranks) idle += row.shards == 0;
  std::array<double, kParts> sums{};
  for (const StepSplit& s : splits) {
    for (int part = 0; part < kParts; ++part) sums[static_cast<size_t>(part)] += s.seconds[static_cast<size_t>(part)];
    out.step_seconds += s.total() / static_cast<double>(splits.size());
    out.steps = std::max(out.steps, s.row->times.steps);
  }
  sums[kIdle] = static_cast<double>(idle) * out.step_seconds;
  const double all = out.step_seconds * static_cast<double>(splits.size() + idle);
  if (all <= 0) return out;
  for (int part = 0; part < kParts; ++part)
    out.shares.emplace_back(part_name(static_cast<Part>(part)), sums[static_cast<size_t>(part)] / all);
  out.enough = out.steps >= kEnoughSteps;
  if (out.enough) Judge(evidence, splits, out).judge();
  if (out.findings.empty()) out.hint = hint_for(evidence, out);
  return out;
}

nlohmann::json to_json(const Explanation& e) {
  nlohmann::json out{{"steps", e.steps},
                     {"step_seconds", e.step_seconds},
                     {"verdict", e.verdict()},
                     {"healthy", e.enough && e.findings.empty()},
                     {"enough", e.enough}};
  out["shares"] = nlohmann::json::object();
  for (const auto& [name, share] : e.shares) out["shares"][name] = std::round(share * 1e4) / 1e4;
  out["findings"] = nlohmann::json::array();
  for (const SlowDown& f : e.findings) {
    out["findings"].push_back({{"cause", cause_name(f.cause)},
                               {"share", std::round(f.share * 1e4) / 1e4},
                               {"text", f.text},
                               {"why", f.why},
                               {"remedy", f.remedy},
                               {"command", f.command},
                               {"confidence", f.sure ? "high" : "medium"}});
    if (f.who >= 0) out["findings"].back()["rank"] = f.who;
  }
  if (!e.hint.empty()) out["hint"] = e.hint;
  return out;
}

std::string explanation_text(const Explanation& e, const Evidence& evidence) {
  std::string out = fmt::format("{}: {:.0f} steps of {:.4g} ms on {} worker{}\n", evidence.run, e.steps,
                                e.step_seconds * 1e3, evidence.ranks.size(), evidence.ranks.size() == 1 ? "" : "s");
  auto shares = e.shares;
  std::stable_sort(shares.begin(), shares.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const auto& [name, share] : shares) {
    if (share < 0.005) continue;
    const int width = std::max(1, static_cast<int>(std::lround(share * 40)));
    out += fmt::format("  {:<14} {:5.1f} %  {}\n", name, share * 100, std::string(static_cast<size_t>(width), '#'));
  }
  out += fmt::format("\n{}\n", e.verdict());
  for (size_t i = 0; i < e.findings.size(); ++i) {
    const SlowDown& f = e.findings[i];
    if (i > 0) out += fmt::format("\nalso: {}\n", f.text);
    out += fmt::format("  why    {}{}\n  do     {}\n", f.why, f.sure ? "" : " (not beyond doubt)", f.remedy);
    if (!f.command.empty()) out += fmt::format("         {}\n", f.command);
  }
  if (!e.hint.empty()) out += fmt::format("  hint   {}\n", e.hint);
  return out;
}

}  // namespace tandem
