#include "rl/gym/gym_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "kernels/float_bits.h"

namespace tandem {
namespace {

// A bijection that scatters: keys of different seeds or actions are different but for chance.
uint64_t scattered(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
uint64_t key_of(int64_t seed) { return scattered(static_cast<uint64_t>(seed) + 0x9E3779B97F4A7C15u); }
uint64_t key_after(uint64_t key, int32_t action) {
  return scattered(key + (static_cast<uint64_t>(action) + 1) * 0x9E3779B97F4A7C15u);
}
uint64_t key_after(uint64_t key, const float* action, int64_t size) {
  for (int64_t i = 0; i < size; ++i) key = key_after(key, static_cast<int32_t>(bits_of_float(action[i])));
  return key;
}

int64_t rounded(int64_t bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace

GymEnvironment::GymEnvironment(const GymOptions& options, int64_t longest, bool require_exact)
    : options_(options), require_exact_(require_exact), process_(std::make_unique<GymProcess>(options)) {
  const GymFacts& facts = process_->facts();
  if (!facts.exact) {
    const std::string what = fmt::format("{} does not repeat itself", options.environment);
    const std::string why = "the same seed and the same actions gave other numbers the second time";
    if (require_exact)
      throw ConfigError(fmt::format("{}, and --exact=require was given", what), why,
                        "draw from self.np_random, which reset(seed=...) sets, and nowhere else; or leave --exact out: "
                        "the run then trains, without the promise of equal bits");
    reported_differs_ = true;
    note_ = fmt::format("{}: {}; equal bits are not promised for this run", what, why);
  }
  const int64_t own = facts.longest;
  longest_ = longest == 0 ? (own > 0 ? own : kLongest) : own > 0 ? std::min(own, longest) : longest;
  if (longest == 0 && own == 0)
    note_ += fmt::format("{}{} has no time limit: its episodes are truncated after {} steps (env.max_steps)",
                         note_.empty() ? "" : "; ", options.environment, kLongest);
  process_->share_memory(longest_);
  bytes_ = rounded(static_cast<int64_t>(sizeof(Head)) + 4 * facts.width + longest_ * process_->action_bytes());
}

void GymEnvironment::reset(std::byte* states, int64_t n, const RandomKey& key, const Outcome* only_ended) const {
  const GymProcess::Slots& slots = process_->slots();
  for (int64_t first = 0; first < n; first += GymProcess::kSlots) {
    const int64_t count = std::min(GymProcess::kSlots, n - first);
    bool any = false;
    for (int64_t s = 0; s < count; ++s) {
      const int64_t i = first + s;
      const bool begins = !only_ended || only_ended[i].end != End::kNone;
      any |= begins;
      slots.status[s] = 0;
      slots.op[s] = begins ? GymProcess::kReset : GymProcess::kNothing;
      // 31 bits: as many as every simulator takes.
      slots.seed[s] = random_u32(key, static_cast<uint64_t>(i)) >> 1;
      slots.count[s] = 0;
      slots.before[s] = only_ended ? head(states, i).key : 0;
      slots.after[s] = key_of(slots.seed[s]);
    }
    if (!any) continue;
    process_->exchange(count);
    for (int64_t s = 0; s < count; ++s) {
      if (!(slots.status[s] & GymProcess::kDone)) continue;
      Head& h = head(states, first + s);
      h = {slots.after[s], slots.seed[s], 0};
      std::memcpy(seen(states, first + s), slots.seen + s * observation_size(),
                  4 * static_cast<size_t>(observation_size()));
      // Bytes of the past would be in snapshots and hashes of the state.
      std::memset(history(states, first + s), 0, static_cast<size_t>(longest_ * process_->action_bytes()));
    }
  }
}

void GymEnvironment::observe(const std::byte* states, float* out, int64_t n) const {
  for (int64_t i = 0; i < n; ++i)
    std::memcpy(out + i * observation_size(), seen(const_cast<std::byte*>(states), i),
                4 * static_cast<size_t>(observation_size()));
}

void GymEnvironment::step(std::byte* states, const int32_t* actions, Outcome* out, int64_t n, const RandomKey&) const {
  step_discrete(states, actions, nullptr, out, n);
}

void GymEnvironment::step_continuous(std::byte* states, const float* actions, Outcome* out, int64_t n,
                                     const RandomKey&) const {
  step_numbers(states, actions, nullptr, out, n);
}

bool GymEnvironment::step_awake(std::byte* states, const float* actions, const int32_t* idle, Outcome* out, int64_t n,
                                const RandomKey&) const {
  if (action_size() > 0) {
    step_numbers(states, actions, idle, out, n);
    return true;
  }
  std::vector<int32_t> chosen(static_cast<size_t>(n));
  std::transform(actions, actions + n, chosen.begin(), [](float action) { return static_cast<int32_t>(action); });
  step_discrete(states, chosen.data(), idle, out, n);
  return true;
}

void GymEnvironment::step_discrete(std::byte* states, const int32_t* actions, const int32_t* idle, Outcome* out,
                                   int64_t n) const {
  const GymProcess::Slots& slots = process_->slots();
  for (int64_t first = 0; first < n; first += GymProcess::kSlots) {
    const int64_t count = std::min(GymProcess::kSlots, n - first);
    for (int64_t s = 0; s < count; ++s) {
      slots.action[s] = actions[first + s];
      slots.after[s] = key_after(head(states, first + s).key, slots.action[s]);
    }
    step_slots(states + first * bytes_, idle ? idle + first : nullptr, out + first, count,
               [&](int64_t s) { return slots.action + s; });  // little-endian: the first bytes are enough
  }
}

void GymEnvironment::step_numbers(std::byte* states, const float* actions, const int32_t* idle, Outcome* out,
                                  int64_t n) const {
  const GymProcess::Slots& slots = process_->slots();
  const int64_t size = action_size();
  for (int64_t first = 0; first < n; first += GymProcess::kSlots) {
    const int64_t count = std::min(GymProcess::kSlots, n - first);
    for (int64_t i = 0; i < count * size; ++i) {
      const float number = actions[first * size + i];
      if (std::isnan(number))
        throw Error(ExitCode::kFailed, fmt::format("an action for {} is not a number", options_.environment),
                    "the policy's weights have become NaN: learning diverged",
                    "lower optimizer.learning_rate, or begin anew with another seed");
      slots.numbers[i] = std::clamp(number, -1.0f, 1.0f);
    }
    for (int64_t s = 0; s < count; ++s)
      slots.after[s] = key_after(head(states, first + s).key, slots.numbers + s * size, size);
    step_slots(states + first * bytes_, idle ? idle + first : nullptr, out + first, count,
               [&](int64_t s) { return slots.numbers + s * size; });
  }
}

void GymEnvironment::tell_differs(const Head& h) const {
  if (std::exchange(reported_differs_, true)) return;
  const std::string what = fmt::format(
      "{} does not repeat itself: the episode of seed {}, replayed to step {}, "
      "shows another observation",
      options_.environment, h.seed, h.count);
  if (require_exact_)
    throw Error(ExitCode::kFailed, what, "equal bits can't be kept, and --exact=require was given",
                "draw from self.np_random, which reset(seed=...) sets, and nowhere else; or resume with --exact=aim");
  note_ = fmt::format("{}; equal bits are not promised for this run", what);
}

template <class ActionOf>
void GymEnvironment::step_slots(std::byte* states, const int32_t* idle, Outcome* out, int64_t n,
                                const ActionOf& action_of) const {
  const auto is_idle = [&](int64_t i) { return idle && idle[i] != 0; };
  const GymProcess::Slots& slots = process_->slots();
  const size_t width = 4 * static_cast<size_t>(observation_size()),
               size = static_cast<size_t>(process_->action_bytes());
  for (int64_t i = 0; i < n; ++i) {
    const Head& h = head(states, i);
    slots.status[i] = 0;
    slots.op[i] = is_idle(i) ? GymProcess::kNothing : GymProcess::kStep;
    slots.before[i] = h.key;
    slots.seed[i] = h.seed;
    slots.count[i] = h.count;
  }
  process_->exchange(n);
  bool missing = false;
  for (int64_t i = 0; i < n; ++i) {
    slots.op[i] = GymProcess::kNothing;
    if (is_idle(i) || (slots.status[i] & GymProcess::kDone)) continue;
    missing = true;
    slots.op[i] = GymProcess::kReplay;
    std::memcpy(slots.seen + i * observation_size(), seen(states, i), width);
    std::memcpy(slots.history + i * longest_ * static_cast<int64_t>(size), history(states, i),
                static_cast<size_t>(head(states, i).count) * size);
  }
  if (missing) process_->exchange(n);
  for (int64_t i = 0; i < n; ++i) {
    if (is_idle(i)) continue;
    Head& h = head(states, i);
    if (slots.status[i] & GymProcess::kDiffers) tell_differs(h);
    std::memcpy(history(states, i) + static_cast<size_t>(h.count) * size, action_of(i), size);
    h.key = slots.after[i];
    ++h.count;
    std::memcpy(seen(states, i), slots.seen + i * observation_size(), width);
    out[i] = {.reward = slots.reward[i], .end = static_cast<End>(slots.end[i])};
    if (out[i].end == End::kNone && h.count >= longest_) out[i].end = End::kTruncated;
  }
}

std::string GymEnvironment::take_note() const {
  std::string note = std::exchange(note_, "");
  const std::string failed = process_->take_note();
  if (!failed.empty()) note += (note.empty() ? "" : "; ") + failed;
  return note;
}

}  // namespace tandem
