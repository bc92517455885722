#include "guard/policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

using Kind = GuardAction::Kind;

bool heat_throttled(const GpuReading& now) {
  return now.throttle && std::any_of(now.throttle->begin(), now.throttle->end(), [](Throttle reason) {
           return reason == Throttle::kThermalSw || reason == Throttle::kThermalHw;
         });
}

bool is_borrowed(Kind kind) {
  return kind == Kind::kFan || kind == Kind::kFanAuto || kind == Kind::kPower || kind == Kind::kPowerBack;
}

const GpuFacts& facts_of(const std::vector<GpuFacts>& all, int gpu) {
  static const GpuFacts unknown;
  const auto found = std::find_if(all.begin(), all.end(), [&](const GpuFacts& f) { return f.index == gpu; });
  return found == all.end() ? unknown : *found;
}

}  // namespace

std::string gpu_text(const GpuFacts& facts) {
  return facts.name ? fmt::format("GPU {} ({})", facts.index, *facts.name) : fmt::format("GPU {}", facts.index);
}

GuardOptions GuardOptions::from(const GuardSettings& s) {
  return {.acts = s.mode == "on",
          .target_c = s.target_c,
          .warn_c = s.warn_c,
          .act_c = s.act_c,
          .power = parse_power(s.power),
          .fan = s.fan,
          .shares = true,
          .hold = true};
}

HeatLimits HeatLimits::of(const GuardOptions& options, const GpuFacts& facts) {
  HeatLimits limits{options.target_c, options.warn_c, options.act_c, options.act_c + 4};
  if (facts.slowdown_c) limits.act_c = std::min(limits.act_c, *facts.slowdown_c - 2.0);
  limits.pause_c = limits.act_c + 4;
  if (facts.shutdown_c) limits.pause_c = std::min(limits.pause_c, std::max(limits.act_c + 1, *facts.shutdown_c - 3.0));
  limits.warn_c = std::min(limits.warn_c, limits.act_c - 3);
  limits.target_c = std::min(limits.target_c, limits.warn_c - 3);
  return limits;
}

std::string heat_text(const GuardOptions& options, const std::vector<GpuFacts>& facts) {
  const HeatLimits first = HeatLimits::of(options, facts.empty() ? GpuFacts{} : facts.front());
  HeatLimits least = first, most = first;
  for (const GpuFacts& about : facts) {
    const HeatLimits one = HeatLimits::of(options, about);
    for (double HeatLimits::*c : {&HeatLimits::target_c, &HeatLimits::warn_c, &HeatLimits::act_c}) {
      least.*c = std::min(least.*c, one.*c);
      most.*c = std::max(most.*c, one.*c);
    }
  }
  const auto range = [](double from, double to) {
    return from < to ? fmt::format("{:.0f}-{:.0f} C", from, to) : fmt::format("{:.0f} C", from);
  };
  return fmt::format("good to {}, warning from {}, acting from {}", range(least.target_c, most.target_c),
                     range(least.warn_c, most.warn_c), range(least.act_c, most.act_c));
}

double GuardPolicy::share(int gpu) const {
  const auto found = states_.find(gpu);
  return found == states_.end() ? 1 : kShares[found->second.shares];
}

std::map<int, double> GuardPolicy::lowered() const {
  std::map<int, double> found;
  for (const auto& [gpu, state] : states_)
    if (state.found_w && (state.set_w || (state.pending && state.pending->set_w))) found[gpu] = *state.found_w;
  return found;
}

double GuardPolicy::floor_of(const GpuState& state, const GpuFacts& facts) const {
  const double wanted = options_.power->watts > 0 ? options_.power->watts : options_.power->share * *state.found_w;
  return std::max(wanted, facts.power_min_w.value_or(wanted));
}

// A limit that is neither the one we found nor the one we set is somebody else's, and stays so.
void GuardPolicy::look_at_limit(GpuState& state, const GpuFacts& facts, const GpuReading& now, double time,
                                std::vector<GuardAction>& actions) {
  if (!now.power_limit_w || state.pending || time < state.shown_from) return;
  if (!state.set_w) {
    state.found_w = *now.power_limit_w;
    return;
  }
  if (time < state.shown_from + 2 || std::abs(*now.power_limit_w - *state.set_w) < 1) return;
  actions.push_back({Kind::kNote, facts.index, *now.power_limit_w,
                     fmt::format("{}: somebody else set its power limit to {:.0f} W (it was {:.0f} W by the guard); it "
                                 "is left as it is",
                                 gpu_text(facts), *now.power_limit_w, *state.set_w)});
  state.set_w.reset();
  state.no_power = true;
}

std::optional<GuardAction> GuardPolicy::climb(GpuState& state, const GpuFacts& facts, const GpuReading& now,
                                              const HeatLimits& limits, bool others_are_cooler) {
  const std::string hot =
      fmt::format("{} is at {} C (hot from {:.0f} C)", gpu_text(facts), now.temperature_c.value_or(0), limits.act_c);
  // While the run waits there is no work to move: somebody else heats the GPU.
  if (options_.shares && !held_since_ && others_are_cooler && state.shares + 1 < static_cast<int>(std::size(kShares))) {
    const double share = kShares[++state.shares];
    return GuardAction{
        Kind::kShare, facts.index, share,
        fmt::format("{}: shards move to cooler GPUs, it counts as {:.0f} % of its speed", hot, share * 100)};
  }
  if (options_.fan && !state.fan && !state.no_fan && now_ >= state.fan_after && facts.fans.value_or(0) > 0) {
    state.fan = true;
    const int percent = facts.fan_max_percent.value_or(100);
    return GuardAction{Kind::kFan, facts.index, static_cast<double>(percent),
                       fmt::format("{}: its fans go to {} %", hot, percent)};
  }
  if (options_.power && !state.no_power && now_ >= state.power_after && state.found_w) {
    const double now_w = state.set_w.value_or(*state.found_w), floor = floor_of(state, facts);
    if (now_w > floor + 0.5) {
      const double next = std::max(floor, now_w - kPowerStep * *state.found_w);
      state.set_w = next;
      return GuardAction{Kind::kPower, facts.index, next,
                         fmt::format("{}: its power limit goes from {:.0f} to {:.0f} W (down to {:.0f} W is allowed)",
                                     hot, now_w, next, floor),
                         now_w};
    }
  }
  if (std::exchange(state.noted_exhausted, true)) return std::nullopt;
  return GuardAction{
      Kind::kNote, facts.index, 0,
      fmt::format("{}{} and all that may be done is done; look at {}its fans, dust and the air around it{}", hot,
                  held_since_ ? ", the run waits" : "", held_since_ ? "other programs on it (nvidia-smi), " : "",
                  options_.power ? "" : ", or allow a lower power limit with --power 80%")};
}

std::optional<GuardAction> GuardPolicy::descend(int gpu, GpuState& state, const std::string& why) {
  if (state.set_w && state.found_w) {
    const double next = *state.set_w + kPowerStep * *state.found_w;
    if (next + 0.5 < *state.found_w) {
      const double now_w = std::exchange(*state.set_w, next);
      return GuardAction{Kind::kPower, gpu, next, fmt::format("{}: its power limit goes up to {:.0f} W", why, next),
                         now_w};
    }
    state.set_w.reset();
    return GuardAction{Kind::kPowerBack, gpu, *state.found_w,
                       fmt::format("{}: its power limit is {:.0f} W again", why, *state.found_w)};
  }
  if (std::exchange(state.fan, false))
    return GuardAction{Kind::kFanAuto, gpu, 0, fmt::format("{}: its fans are the driver's again", why)};
  if (state.shares > 0) {
    const double share = kShares[--state.shares];
    return GuardAction{Kind::kShare, gpu, share,
                       share == 1 ? fmt::format("{}: it gets all its shards again", why)
                                  : fmt::format("{}: it counts as {:.0f} % of its speed", why, share * 100)};
  }
  return std::nullopt;
}

std::vector<GuardAction> GuardPolicy::step(double time, const std::vector<GpuFacts>& facts,
                                           const std::vector<GpuReading>& gpus) {
  std::vector<GuardAction> actions;
  if (!options_.acts) return actions;
  now_ = time;
  bool all_cool = true;
  int too_hot = -1;
  for (const GpuReading& now : gpus) {
    const GpuFacts& about = facts_of(facts, now.index);
    const HeatLimits limits = HeatLimits::of(options_, about);
    GpuState& state = states_[now.index];
    state.seen_at = time;
    const Pending before{state.set_w, state.fan};
    if (now.lost || !now.temperature_c) {  // nothing is known: nothing is done
      state.hot_since.reset();
      state.cool_since.reset();
      // A GPU that was warm and reports no temperature any more does not count as cool.
      if (!now.lost && time - state.warm_at < kBlindSeconds) all_cool = false;
      continue;
    }
    look_at_limit(state, about, now, time, actions);
    const double celsius = *now.temperature_c;
    state.warm_at = celsius <= limits.target_c ? -1e9 : time;
    all_cool = all_cool && celsius <= limits.target_c;
    if (celsius >= limits.pause_c) too_hot = now.index;
    const bool hot = celsius >= limits.act_c || heat_throttled(now), cool = celsius <= limits.target_c;
    if (!hot) state.hot_since.reset();
    if (!cool) state.cool_since.reset();
    if (hot && !state.hot_since) {
      state.hot_since = time;
      if (time - state.undone < kAgainSeconds) state.patience = std::min(kMostPatience, state.patience * 2);
    }
    if (cool && !state.cool_since) state.cool_since = time;
    const bool others_are_cooler = std::any_of(gpus.begin(), gpus.end(), [&](const GpuReading& other) {
      return other.index != now.index && !other.lost && other.temperature_c &&
             *other.temperature_c < HeatLimits::of(options_, facts_of(facts, other.index)).warn_c;
    });
    const bool boiling = celsius >= limits.pause_c;  // no time to see whether the last rung helped
    // A hold is a rung as well: it has its time to help, and does not end the climb of a GPU that stays hot.
    const double last_rung = std::max(state.changed, held_since_.value_or(state.changed));
    if (!state.pending && hot && (time - *state.hot_since >= kHotSeconds || boiling) &&
        time - last_rung >= (boiling ? kHotSeconds : kSettleSeconds)) {
      if (auto action = climb(state, about, now, limits, others_are_cooler)) {
        if (action->kind != Kind::kNote) state.changed = time;
        if (is_borrowed(action->kind)) state.pending = before;
        actions.push_back(*action);
      }
    }
    const double wait = kCoolSeconds * state.patience;
    if (!held_since_ && !state.pending && cool && time - *state.cool_since >= wait && time - state.changed >= wait) {
      if (auto action = descend(now.index, state, fmt::format("{} is cool ({:.0f} C)", gpu_text(about), celsius))) {
        state.changed = state.undone = time;
        state.noted_exhausted = false;
        if (is_borrowed(action->kind)) state.pending = before;
        actions.push_back(*action);
      } else if (time - state.undone > 10 * kAgainSeconds) {
        state.patience = 1;
      }
    }
  }
  leave_absent(time, gpus, actions);
  hold_or_resume(time, facts, gpus, too_hot, all_cool, actions);
  return actions;
}

// `too_hot`: a GPU above its pause temperature, or -1.
void GuardPolicy::hold_or_resume(double time, const std::vector<GpuFacts>& facts, const std::vector<GpuReading>& gpus,
                                 int too_hot, bool all_cool, std::vector<GuardAction>& actions) {
  if (options_.hold && !held_since_ && too_hot >= 0) {
    held_since_ = time;
    held_for_ = too_hot;
    const auto at = std::find_if(gpus.begin(), gpus.end(), [&](const GpuReading& r) { return r.index == too_hot; });
    const HeatLimits limits = HeatLimits::of(options_, facts_of(facts, too_hot));
    actions.push_back(
        {Kind::kHold, too_hot, 0,
         fmt::format("{} is at {} C: the run waits at its next step until it is at {:.0f} C, then goes on "
                     "by itself",
                     gpu_text(facts_of(facts, too_hot)), *at->temperature_c, limits.target_c)});
  } else if (held_since_ && time - *held_since_ >= kHoldSeconds && all_cool) {
    actions.push_back({Kind::kResume, held_for_, 0,
                       fmt::format("{} is cool: the run goes on after {:.0f} s", gpu_text(facts_of(facts, held_for_)),
                                   time - *held_since_)});
    held_since_.reset();
    held_for_ = -1;
    for (auto& [gpu, state] : states_) state.cool_since.reset();  // it was cool because nothing ran
  }
}

// A GPU whose worker has left is no longer ours to keep slow.
void GuardPolicy::leave_absent(double time, const std::vector<GpuReading>& gpus, std::vector<GuardAction>& actions) {
  for (auto item = states_.begin(); item != states_.end();) {
    auto& [gpu, state] = *item;
    const bool here =
        std::any_of(gpus.begin(), gpus.end(), [&](const GpuReading& r) { return r.index == item->first; });
    if (here || state.pending || time - state.seen_at < kGoneSeconds) {
      ++item;
      continue;
    }
    if (state.set_w && state.found_w) *state.set_w = *state.found_w;  // in one go
    while (const auto action = descend(gpu, state, fmt::format("GPU {} is no longer used here", gpu)))
      if (action->kind != Kind::kShare) actions.push_back(*action);
    item = states_.erase(item);
  }
}

void GuardPolicy::done(const GuardAction& action, double time) {
  const auto found = states_.find(action.gpu);
  if (found == states_.end() || !is_borrowed(action.kind)) return;
  GpuState& state = found->second;
  state.pending.reset();
  state.changed = std::max(state.changed, time);  // it begins to help now
  state.shown_from = time;
  state.refusals.erase(action.kind);
  (action.kind == Kind::kFan ? state.fan_retry_s : state.power_retry_s) = kRetrySeconds;
}

bool GuardPolicy::refused(const GuardAction& action, const std::string& words, bool for_good) {
  const auto found = states_.find(action.gpu);
  if (found == states_.end()) return true;
  GpuState& state = found->second;
  if (state.pending) state.set_w = state.pending->set_w, state.fan = state.pending->fan;
  state.pending.reset();
  const bool climbing = action.kind == Kind::kFan || action.kind == Kind::kPower;
  if (climbing) state.changed = -1e9;  // nothing happened: the next rung need not wait
  if (climbing) {
    const bool fan = action.kind == Kind::kFan;
    (fan ? state.no_fan : state.no_power) = for_good;
    double& wait = fan ? state.fan_retry_s : state.power_retry_s;
    (fan ? state.fan_after : state.power_after) = now_ + wait;
    wait = std::min(kMostRetrySeconds, wait * 2);
  }
  return std::exchange(state.refusals[action.kind], words) != words;
}

std::vector<GuardAction> GuardPolicy::give_all_back() {
  std::vector<GuardAction> actions;
  for (auto& [gpu, state] : states_) {
    const std::string why = fmt::format("GPU {}: the guard ends", gpu);
    if (state.set_w && state.found_w) *state.set_w = *state.found_w;  // in one go
    while (const auto action = descend(gpu, state, why))
      if (action->kind != Kind::kShare) actions.push_back(*action);
  }
  return actions;
}

}  // namespace tandem
