// The kernel of the options environments, emulated on the CPU, beside the environment itself.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "market/cuda_options_environment.cu"  // NOLINT(bugprone-suspicious-include)
#include "market/options_environment.h"
#include "market/options_test_market.h"

namespace tandem {
namespace {

constexpr uint32_t kResetSite = 5;
constexpr uint32_t kShardNumbers[] = {4, 9};
constexpr int kKernelShards = 2, kKernelEnvironments = 70;  // one block and a part of another

struct KernelArrays {
  std::vector<OptionsState> states = std::vector<OptionsState>(kKernelShards * kKernelEnvironments);
  std::vector<int32_t> actions = std::vector<int32_t>(states.size());
  std::vector<int32_t> ends = actions, rows = actions;
  std::vector<float> rewards = std::vector<float>(states.size()),
                     seen = std::vector<float>(states.size() * kOwnFeatures);

  std::vector<OptionsShard> shards() {
    std::vector<OptionsShard> out;
    for (size_t s = 0, at = 0; s < kKernelShards; ++s, at += kKernelEnvironments)
      out.push_back(
          {kShardNumbers[s], &states[at], &actions[at], &rewards[at], &ends[at], &seen[at * kOwnFeatures], &rows[at]});
    return out;
  }
};

// What a learner on the CPU does for one of the modes.
void advance_on_cpu(const OptionsEnvironment& environment, KernelArrays& a, const RandomKey& key, OptionsAdvance what) {
  for (size_t s = 0, at = 0; s < kKernelShards; ++s, at += kKernelEnvironments) {
    RandomKey mine = key;
    mine.shard = kShardNumbers[s];
    mine.site = kResetSite;
    for (int64_t e = 0; e < kKernelEnvironments; ++e) {
      const size_t i = at + static_cast<size_t>(e);
      const bool ended = a.states[i].end != 0;
      Outcome outcome;
      if (what == OptionsAdvance::kReset ||
          (ended && what != OptionsAdvance::kStep && what != OptionsAdvance::kObserve))
        reset_options(a.states[i], environment.market(), environment.rules(), mine, e);
      else if (what == OptionsAdvance::kStep || what == OptionsAdvance::kStepOrReset)
        outcome = environment.step_one(a.states[i], a.actions[i]);
      if (what == OptionsAdvance::kResetEnded || what == OptionsAdvance::kObserve) continue;
      a.rewards[i] = outcome.reward;
      a.ends[i] = static_cast<int32_t>(outcome.end);
    }
  }
  const auto* states = reinterpret_cast<const std::byte*>(a.states.data());
  environment.observe(states, a.seen.data(), static_cast<int64_t>(a.states.size()));
  environment.table_rows(states, a.rows.data(), static_cast<int64_t>(a.states.size()));
}

void expect_same_arrays(const KernelArrays& cpu, const KernelArrays& gpu, uint64_t step) {
  ASSERT_EQ(std::memcmp(cpu.states.data(), gpu.states.data(), cpu.states.size() * sizeof(OptionsState)), 0) << step;
  ASSERT_EQ(cpu.rewards, gpu.rewards) << step;
  ASSERT_EQ(cpu.ends, gpu.ends) << step;
  ASSERT_EQ(cpu.rows, gpu.rows) << step;
  ASSERT_EQ(cpu.seen, gpu.seen) << step;
}

TEST(OptionsKernel, MovesEnvironmentsAsTheCpuDoes) {
  const OptionsTestMarket market = random_options_market(3, 120, 21, 0.04);
  const OptionsRules rules{.order_share = 0.2, .episode = 40, .multi_leg = 1};
  const OptionsEnvironment environment(market.view(), rules);
  KernelArrays cpu, gpu;
  const std::vector<OptionsShard> shards = gpu.shards();
  const OptionsAdvance plan[] = {OptionsAdvance::kReset,       OptionsAdvance::kStep,
                                 OptionsAdvance::kStepOrReset, OptionsAdvance::kStep,
                                 OptionsAdvance::kResetEnded,  OptionsAdvance::kStepOrReset,
                                 OptionsAdvance::kStepOrReset, OptionsAdvance::kObserve};
  int64_t ended = 0;
  for (uint64_t step = 0; step < 160; ++step) {
    const OptionsAdvance what = step == 0 ? OptionsAdvance::kReset : plan[1 + step % 7];
    for (size_t i = 0; i < cpu.actions.size(); ++i)
      cpu.actions[i] = gpu.actions[i] = static_cast<int32_t>(random_below({2, step, 0, 0}, i, 91));
    const RandomKey key{17, step, 77, 88};  // shard and site are not read
    advance_on_cpu(environment, cpu, key, what);
    cuda_on_cpu::last_thread_first = step % 2 == 1;
    cuda::advance_options(shards.data(), kKernelShards, kKernelEnvironments, environment.market(), rules, &key,
                          kResetSite, what, nullptr);
    cuda_on_cpu::last_thread_first = false;
    ASSERT_NO_FATAL_FAILURE(expect_same_arrays(cpu, gpu, step));
    for (const int32_t end : gpu.ends) ended += end != 0;
  }
  EXPECT_GT(ended, 100);
}

}  // namespace
}  // namespace tandem
