#include "guard/fault_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace tandem {
namespace {

using Weight = GpuNotice::Weight;

constexpr double kGoneSeconds = 30;    // absent for this long: it is over
constexpr double kAgainSeconds = 600;  // and reported again at the earliest so long after
constexpr double kSilentSeconds = 10;

std::string clocks(const GpuReading& now) {
  if (!now.sm_clock_mhz) return "";
  if (now.sm_clock_max_mhz && *now.sm_clock_mhz >= *now.sm_clock_max_mhz) return "";  // they would deny what is said
  return now.sm_clock_max_mhz ? fmt::format(" at {} of {} MHz", *now.sm_clock_mhz, *now.sm_clock_max_mhz)
                              : fmt::format(" at {} MHz", *now.sm_clock_mhz);
}

std::string temperature(const GpuReading& now) {
  return now.temperature_c ? fmt::format("it is at {} C", *now.temperature_c) : "its temperature is not known";
}

std::string against_heat(bool power_given) {
  return fmt::format("more air: clean fans and filters, open the case, a slot between GPUs{}",
                     power_given ? "" : "; or a lower limit: tandem guard --power 80%");
}

// `found_w`: the guard holds the limit lower than this, which it found.
GpuNotice throttled(const GpuFacts& facts, const GpuReading& now, Throttle reason, bool power_given,
                    std::optional<double> found_w) {
  GpuNotice notice{.gpu = facts.index,
                   .id = std::string(throttle_name(reason)),
                   .what = fmt::format("{} runs slower than it could{}", gpu_text(facts), clocks(now)),
                   .why = std::string(throttle_in_words(reason)),
                   .todo = ""};
  const int gpu = facts.index;
  switch (reason) {
    case Throttle::kPowerCap: {
      const auto limit = now.power_limit_w ? now.power_limit_w : facts.power_limit_w;
      if (limit) notice.why = fmt::format("its power limit of {:.0f} W is reached", *limit);
      if (limit && found_w && *limit + 1 < *found_w) {
        notice.weight = Weight::kNote;
        notice.why = fmt::format("the guard holds its power limit at {:.0f} W against its heat ({:.0f} W was found)",
                                 *limit, *found_w);
        notice.todo = "nothing: the guard gives it back once the GPU is cool";
        break;
      }
      const bool lowered = limit && facts.power_default_w && *limit + 1 < *facts.power_default_w;
      if (lowered) {
        notice.why += fmt::format(" ({:.0f} W is its default)", *facts.power_default_w);
        notice.todo = fmt::format("raise it if power supply and cooling allow: sudo nvidia-smi -i {} -pl {:.0f}", gpu,
                                  *facts.power_default_w);
      } else {
        notice.weight = Weight::kNote;
        notice.todo = "nothing: usual under full load";
        if (facts.power_max_w && limit && *facts.power_max_w > *limit + 1)
          notice.todo += fmt::format("; its maker allows up to {:.0f} W (sudo nvidia-smi -i {} -pl {:.0f})",
                                     *facts.power_max_w, gpu, *facts.power_max_w);
      }
      break;
    }
    case Throttle::kThermalSw:
    case Throttle::kThermalHw:
      notice.why += ", " + temperature(now);
      notice.todo = against_heat(power_given);
      break;
    case Throttle::kHwSlowdown:
      notice.why += ", " + temperature(now);
      notice.todo = "if it is not hot: check its power cables and the power supply; else more air";
      break;
    case Throttle::kPowerBrake:
      notice.todo = "the power supply or the rack asks for less: a larger supply, fewer GPUs on it, or lower limits";
      break;
    case Throttle::kApplicationClocks:
      notice.todo = fmt::format("give its clocks back: sudo nvidia-smi -i {0} -rac; sudo nvidia-smi -i {0} -rgc", gpu);
      break;
    case Throttle::kSyncBoost:
      notice.todo = "it waits for the slowest GPU of its sync group; take it out of the group if that is not wanted";
      break;
    case Throttle::kDisplayClocks:
      notice.todo = "a display hangs on this GPU: move it to another one, or close it";
      break;
    case Throttle::kIdle:
    case Throttle::kOther:
      notice.todo = fmt::format("look at nvidia-smi -q -i {} -d PERFORMANCE", gpu);
      break;
  }
  return notice;
}

}  // namespace

std::string GpuNotice::text() const {
  if (over) return what;
  return fmt::format("{}; cause: {}; do: {}", what, why, todo);
}

std::vector<FaultWatch::Condition> FaultWatch::conditions(const GpuFacts& facts, const GpuReading& now,
                                                          std::optional<double> found_w) {
  std::vector<Condition> found;
  const std::string name = gpu_text(facts);
  if (now.lost) {
    found.push_back({0,
                     {.gpu = facts.index,
                      .id = "lost",
                      .weight = Weight::kFault,
                      .what = name + " is gone",
                      .why = now.trouble.empty() ? "the driver says: GPU is lost" : "the driver says: " + now.trouble,
                      .todo = xid_meaning(79).todo}});
    return found;
  }
  if (!now.trouble.empty())
    found.push_back({5,
                     {.gpu = facts.index,
                      .id = "silent",
                      .what = name + " does not answer",
                      .why = "the driver says: " + now.trouble,
                      .todo = "look at nvidia-smi and at dmesg | grep -i nvrm; restart the machine if it stays so"}});
  add_heat(facts, now, found_w, found);
  add_memory_errors(facts, now, found);
  add_link(facts, now, found);
  if (now.memory_used_bytes && facts.memory_bytes &&
      static_cast<double>(*now.memory_used_bytes) >= 0.98 * static_cast<double>(*facts.memory_bytes))
    found.push_back({5,
                     {.gpu = facts.index,
                      .id = "memory_full",
                      .what = fmt::format("{}: {:.1f} of {:.1f} GiB of its memory are taken", name,
                                          static_cast<double>(*now.memory_used_bytes) / (1ull << 30),
                                          static_cast<double>(*facts.memory_bytes) / (1ull << 30)),
                      .why = "the batch is large, or another program is on the GPU",
                      .todo = "see who: nvidia-smi; end it, or train with accumulation = 2 or a smaller batch_size"}});
  return found;
}

void FaultWatch::add_heat(const GpuFacts& facts, const GpuReading& now, std::optional<double> found_w,
                          std::vector<Condition>& found) const {
  const std::string name = gpu_text(facts);
  const bool power_given = options_.power || found_w;  // who lowered a limit was allowed to
  if (now.temperature_c) {
    const HeatLimits limits = HeatLimits::of(options_, facts);
    if (*now.temperature_c >= limits.warn_c)
      found.push_back(
          {3,
           {.gpu = facts.index,
            .id = "warm",
            .what = fmt::format("{} is at {} C", name, *now.temperature_c),
            .why = fmt::format("its fans do not carry away {}{}",
                               now.power_w ? fmt::format("{:.0f} W", *now.power_w) : "its heat",
                               options_.acts ? fmt::format("; from {:.0f} C on it is acted upon", limits.act_c) : ""),
            .todo = against_heat(power_given)}});
  }
  if (now.throttle) {
    // Heat has two names here: the more exact one is reported.
    const std::set<Throttle> reasons(now.throttle->begin(), now.throttle->end());
    const bool exact = reasons.contains(Throttle::kThermalHw) || reasons.contains(Throttle::kPowerBrake);
    for (const Throttle reason : reasons) {
      if (reason == Throttle::kIdle || (reason == Throttle::kHwSlowdown && exact)) continue;
      found.push_back(
          {reason == Throttle::kPowerCap ? kLongestSeconds : 3, throttled(facts, now, reason, power_given, found_w)});
    }
  }
}

// Errors since the first look.
void FaultWatch::add_memory_errors(const GpuFacts& facts, const GpuReading& now, std::vector<Condition>& found) {
  const std::string name = gpu_text(facts);
  if (now.ecc_uncorrected) {
    const uint64_t before = uncorrected_.try_emplace(facts.index, *now.ecc_uncorrected).first->second;
    if (*now.ecc_uncorrected > before)
      found.push_back({0,
                       {.gpu = facts.index,
                        .id = "ecc_uncorrected",
                        .weight = Weight::kFault,
                        .what = fmt::format("{}: {} memory errors that could not be corrected", name,
                                            *now.ecc_uncorrected - before),
                        .why = "its memory is failing, or was hit by radiation",
                        .todo = fmt::format("stop what runs on it and reset it: sudo nvidia-smi -r -i {}; if it "
                                            "repeats, replace the GPU",
                                            facts.index)}});
  }
  if (now.ecc_corrected) {
    const uint64_t before = corrected_.try_emplace(facts.index, *now.ecc_corrected).first->second;
    if (*now.ecc_corrected > before + 10)
      found.push_back({0,
                       {.gpu = facts.index,
                        .id = "ecc_corrected",
                        .what = fmt::format("{}: {} memory errors, all corrected", name, *now.ecc_corrected - before),
                        .why = "single bits of its memory flip",
                        .todo = fmt::format("watch them: nvidia-smi -q -d ECC -i {}", facts.index)}});
  }
}

void FaultWatch::add_link(const GpuFacts& facts, const GpuReading& now, std::vector<Condition>& found) {
  const std::string name = gpu_text(facts);
  if (facts.pcie_width && facts.pcie_width_max && *facts.pcie_width < *facts.pcie_width_max)
    found.push_back(
        {0,
         {.gpu = facts.index,
          .id = "pcie_width",
          .what = fmt::format("{} talks over {} of {} PCIe lanes", name, *facts.pcie_width, *facts.pcie_width_max),
          .why = "a slot with fewer lanes, a riser, or a contact that is dirty or loose",
          .todo = "put it into a slot with all lanes, or seat it and its riser anew"}});
  const bool busy = now.utilisation_percent.value_or(0) >= 20;  // an idle link sleeps at generation 1
  if (busy && facts.pcie_generation && facts.pcie_generation_max && *facts.pcie_generation < *facts.pcie_generation_max)
    found.push_back({0,
                     {.gpu = facts.index,
                      .id = "pcie_generation",
                      .what = fmt::format("{} talks PCIe {} where {} is possible", name, *facts.pcie_generation,
                                          *facts.pcie_generation_max),
                      .why = "the board's setting, a riser that can't do more, or many link errors",
                      .todo = "set the slot to its generation in the firmware's setup, or try without the riser"}});
}

std::vector<GpuNotice> FaultWatch::see(double time, const std::vector<GpuFacts>& facts,
                                       const std::vector<GpuReading>& gpus, const std::map<int, double>& lowered) {
  std::vector<GpuNotice> news;
  std::set<std::pair<int, std::string>> here;
  for (const GpuReading& now : gpus) {
    const auto about =
        std::find_if(facts.begin(), facts.end(), [&](const GpuFacts& f) { return f.index == now.index; });
    if (about == facts.end()) continue;
    const auto held = lowered.find(now.index);
    const auto found_w = held == lowered.end() ? std::optional<double>() : held->second;
    for (Condition& condition : conditions(*about, now, found_w)) {
      const auto key = std::make_pair(now.index, condition.notice.id);
      here.insert(key);
      Seen& seen = seen_[key];
      seen.gone_since.reset();
      if (!seen.since) seen.since = time;
      if (seen.reported || time - *seen.since < condition.after_seconds || time - seen.reported_at < kAgainSeconds)
        continue;
      seen.reported = true;
      seen.reported_at = time;
      news.push_back(std::move(condition.notice));
    }
  }
  for (auto& [key, seen] : seen_) {
    if (here.contains(key) || !seen.since) continue;
    if (!seen.gone_since) seen.gone_since = time;
    if (!seen.reported) {
      seen.since.reset();
      continue;
    }
    if (time - *seen.gone_since < kGoneSeconds) continue;
    seen.since.reset();
    if (std::exchange(seen.reported, false))
      news.push_back({.gpu = key.first,
                      .id = key.second,
                      .weight = Weight::kNote,
                      .what = fmt::format("GPU {}: {} is over", key.first, key.second),
                      .why = "",
                      .todo = "",
                      .over = true});
  }
  return news;
}

std::vector<GpuNotice> FaultWatch::at_once(const GuardOptions& options, const GpuFacts& facts, const GpuReading& now,
                                           std::optional<double> found_w) {
  FaultWatch watch(options);
  if (now.ecc_corrected > 100) watch.corrected_[facts.index] = 0;  // as doctor judges them
  watch.uncorrected_[facts.index] = 0;
  std::vector<GpuNotice> notices;
  for (Condition& condition : watch.conditions(facts, now, found_w)) notices.push_back(std::move(condition.notice));
  return notices;
}

GpuNotice FaultWatch::xid(const std::vector<GpuFacts>& facts, const XidEvent& event) const {
  const auto about = std::find_if(facts.begin(), facts.end(), [&](const GpuFacts& f) { return f.index == event.gpu; });
  const XidMeaning meaning = xid_meaning(event.xid);
  return {.gpu = event.gpu,
          .id = fmt::format("xid_{}", event.xid),
          .weight = meaning.fatal ? Weight::kFault : Weight::kWarning,
          .what = fmt::format("{}: the driver reports Xid {}", about == facts.end() ? "a GPU" : gpu_text(*about),
                              event.xid),
          .why = meaning.meaning,
          .todo = meaning.todo};
}

std::optional<GpuNotice> FaultWatch::silence(double quiet_seconds, bool held) {
  if (quiet_seconds < kSilentSeconds) {
    if (!std::exchange(silent_, false)) return std::nullopt;
    return GpuNotice{.id = "driver_silent",
                     .weight = Weight::kNote,
                     .what = "the NVIDIA driver answers again",
                     .why = "",
                     .todo = "",
                     .over = true};
  }
  if (std::exchange(silent_, true)) return std::nullopt;
  return GpuNotice{.id = "driver_silent",
                   .what = fmt::format("the NVIDIA driver has not answered for {:.0f} s", quiet_seconds),
                   .why = "a call into it hangs: a GPU that is falling off the bus, or a firmware fault",
                   .todo = held ? "look at dmesg | grep -i nvrm; the run is held until its GPUs are known to be cool: "
                                  "Ctrl-C ends it"
                                : "look at dmesg | grep -i nvrm; heat and power are not watched meanwhile"};
}

}  // namespace tandem
