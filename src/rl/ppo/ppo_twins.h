// rl/ppo/ppo_twins.h -- PPO's kernels beside their CPU twins: rollouts, mini-batches and losses, equal to the bit.
//
// Memory::Array<T> says where the kernels' data lie: Array(values) puts them there, data() is a pointer, get() brings
// them back. Each function returns what differs first, or "".
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "kernels/cpu/random_fill.h"
#include "rl/ppo/ppo_kernels.h"

namespace tandem {

struct PpoTwinCase {
  const char* name;
  RolloutShape shape;
  int64_t rows;  // of a mini-batch
};
inline const PpoTwinCase kPpoTwinCases[] = {
    {"31 actions, a window of 20 over a table",
     {.environments = 37, .horizon = 11, .window = 20, .own = 9, .table = 14, .actions = 31},
     52},
    {"two actions, no window", {.environments = 5, .horizon = 24, .window = 1, .own = 4, .actions = 2}, 24},
    {"three numbers, a window of 3", {.environments = 19, .horizon = 8, .window = 3, .own = 6, .action_size = 3}, 38},
};

// The same values for both.
template <class Memory, class T>
class TwinArray {
 public:
  explicit TwinArray(std::vector<T> values) : host_(std::move(values)), there_(host_) {}
  explicit TwinArray(int64_t n) : TwinArray(std::vector<T>(static_cast<size_t>(n))) {}
  T* at(bool gpu) { return gpu ? there_.data() : host_.data(); }
  bool same() const {
    const std::vector<T> back = there_.get();
    return std::memcmp(back.data(), host_.data(), host_.size() * sizeof(T)) == 0;
  }

 private:
  std::vector<T> host_;
  typename Memory::template Array<T> there_;
};

inline std::vector<float> twin_numbers(int64_t n, uint32_t site, float deviation = 1.0f) {
  std::vector<float> values(static_cast<size_t>(n));
  fill_normal(values.data(), n, RandomKey{7, 1, 2, site}, 0, 0, deviation);
  return values;
}
inline std::vector<int32_t> twin_ends(int64_t n, uint32_t site) {
  std::vector<int32_t> ends(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t drawn = random_below({7, 2, 2, site}, static_cast<uint64_t>(i), 8);
    ends[static_cast<size_t>(i)] = drawn < 3 ? static_cast<int32_t>(drawn) : 0;
  }
  return ends;
}

template <class Memory>
class PpoTwins {
 public:
  PpoTwins(const PpoKernels& kernels, const PpoTwinCase& of) : kernels_(kernels), c_(of) {}

  std::string differs() {
    for (int64_t t = 0; t <= s_.horizon; ++t) {
      play(t);
      if (const std::string what = rollout_differs(); !what.empty()) return what + " at step " + std::to_string(t);
    }
    for (const bool gpu : {false, true})
      kernels(gpu).advantages(rollout(gpu), s_, scale_.at(gpu), 0.99f, 0.95f, nullptr);
    if (const std::string what = rollout_differs(); !what.empty()) return what + " after the advantages";
    for (uint64_t batch = 0; batch < 4; ++batch)
      if (const std::string what = batch_differs(batch); !what.empty()) return what;
    return "";
  }

 private:
  template <class T>
  using Array = TwinArray<Memory, T>;
  const PpoKernels& kernels(bool gpu) const { return gpu ? kernels_ : PpoKernels::cpu(); }

  // Captured with other numbers than those of now, which are read where the kernel runs.
  RandomSource key(bool gpu, uint32_t site) { return RandomSource({1, 1, 3, site}, now_.at(gpu)); }
  Rollout rollout(bool gpu) {
    return {own_.at(gpu),    row_.at(gpu), age_.at(gpu),    action_.at(gpu),    log_prob_.at(gpu), value_.at(gpu),
            reward_.at(gpu), end_.at(gpu), weight_.at(gpu), advantage_.at(gpu), target_.at(gpu)};
  }

  void play(int64_t t) {
    const uint32_t site = 100 + static_cast<uint32_t>(t);
    Array<float> policy(twin_numbers(n_ * s_.outputs(), site)), value(twin_numbers(n_, site + 100)),
        reward(twin_numbers(n_, site + 200)), own(twin_numbers(n_ * s_.own, site + 300));
    Array<int32_t> end(twin_ends(n_, site + 400));
    std::vector<int32_t> rows(static_cast<size_t>(n_));
    for (int64_t e = 0; e < n_; ++e) rows[static_cast<size_t>(e)] = static_cast<int32_t>(e % 40 + t);
    Array<int32_t> row(std::move(rows));
    for (const bool gpu : {false, true}) {
      const WindowSource source{s_.table > 0 ? table_.at(gpu) : nullptr, before_.at(gpu)};
      kernels(gpu).windows(rollout(gpu), s_, source, t, clock_, key(gpu, 0), seen_.at(gpu), number_.at(gpu), nullptr);
      kernels(gpu).act(rollout(gpu), s_, t, policy.at(gpu), s_.action_size > 0 ? deviation_.at(gpu) : nullptr,
                       value.at(gpu), key(gpu, 5), actions_.at(gpu), nullptr);
      if (t == s_.horizon) continue;
      kernels(gpu).note(rollout(gpu), s_, t, {reward.at(gpu), end.at(gpu), own.at(gpu), row.at(gpu)},
                        {returned_.at(gpu), discounted_.at(gpu), length_.at(gpu), ended_.at(gpu), squares_.at(gpu),
                         finished_.at(gpu), counts_.at(gpu)},
                        0.99f, nullptr);
    }
  }
  std::string rollout_differs() const {
    if (!seen_.same() || !number_.same()) return "windows differ";
    if (!action_.same() || !actions_.same() || !log_prob_.same() || !value_.same()) return "actions differ";
    if (!own_.same() || !row_.same() || !age_.same()) return "observations differ";
    if (!reward_.same() || !end_.same() || !weight_.same()) return "outcomes differ";
    if (!returned_.same() || !discounted_.same() || !length_.same() || !ended_.same() || !squares_.same() ||
        !finished_.same() || !counts_.same())
      return "tallies differ";
    return advantage_.same() && target_.same() ? "" : "advantages differ";
  }

  std::string batch_differs(uint64_t micro_batch) {
    const int64_t rows = c_.rows, outputs = s_.outputs();
    const MiniBatchPlan plan{.rows = rows, .batches = s_.rows() / rows, .epochs = 2};
    Array<RandomKey> now(std::vector<RandomKey>{{11, micro_batch, 9, 9}});
    Array<float> seen(rows * s_.window * s_.width()), action(rows * s_.action_floats()), log_prob(rows),
        advantage(rows), target(rows), weight(rows), loss(rows), terms(rows * kPpoTerms), d_policy(rows * outputs),
        d_deviation(rows * outputs), d_value(rows);
    Array<int64_t> row(rows), table_row(rows);
    Array<float> shift(std::vector<float>{0.1f, 1.3f}), policy(twin_numbers(rows * outputs, 50)),
        value(twin_numbers(rows, 51)), deviation(twin_numbers(rows * outputs, 52, 0.3f));
    for (const bool gpu : {false, true}) {
      const WindowSource source{s_.table > 0 ? table_.at(gpu) : nullptr, before_.at(gpu)};
      const MiniBatch out{seen.at(gpu),   action.at(gpu), log_prob.at(gpu), advantage.at(gpu),
                          target.at(gpu), weight.at(gpu), row.at(gpu),      table_row.at(gpu)};
      kernels(gpu).gather(rollout(gpu), s_, source, plan, shift.at(gpu), RandomSource({1, 1, 3, 2}, now.at(gpu)), out,
                          nullptr);
      const bool continuous = s_.action_size > 0;
      kernels(gpu).loss(policy.at(gpu), continuous ? deviation.at(gpu) : nullptr, value.at(gpu), out, s_, rows, {},
                        loss.at(gpu), terms.at(gpu), d_policy.at(gpu), continuous ? d_deviation.at(gpu) : nullptr,
                        d_value.at(gpu), nullptr);
    }
    if (!seen.same() || !action.same() || !log_prob.same() || !advantage.same() || !target.same() || !weight.same() ||
        !row.same() || !table_row.same())
      return "rows of micro-batch " + std::to_string(micro_batch) + " differ";
    return loss.same() && terms.same() && d_policy.same() && d_deviation.same() && d_value.same() ? ""
                                                                                                  : "losses differ";
  }

  const PpoKernels& kernels_;
  PpoTwinCase c_;
  RolloutShape s_ = c_.shape;
  int64_t n_ = s_.environments, steps_ = n_ * s_.horizon, slots_ = n_ * s_.slots();
  RolloutClock clock_{.key_steps = 4, .horizon = s_.horizon};
  Array<RandomKey> now_{std::vector<RandomKey>{{11, 23, 9, 9}}};
  Array<float> table_{twin_numbers(60 * s_.table, 1)}, before_{twin_numbers(s_.own, 2)},
      deviation_{twin_numbers(s_.outputs(), 3, 0.3f)}, scale_{std::vector<float>{0.7f}};
  Array<float> own_{twin_numbers(slots_ * s_.own, 4)}, action_{steps_ * s_.action_floats()}, log_prob_{steps_},
      value_{n_ * (s_.horizon + 1)}, reward_{steps_}, weight_{steps_}, advantage_{steps_}, target_{steps_};
  Array<int32_t> row_{slots_}, age_{slots_}, end_{steps_};
  Array<float> seen_{n_ * s_.window * s_.width()}, actions_{n_ * s_.action_floats()};
  Array<int64_t> number_{n_};
  Array<float> returned_{n_}, discounted_{n_}, squares_{n_}, finished_{n_};
  Array<int32_t> length_{n_}, ended_{n_};
  Array<int64_t> counts_{n_ * kTallyCounts};
};

}  // namespace tandem
