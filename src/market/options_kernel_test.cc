// The kernel of the options environments, emulated on the CPU, beside the environment itself.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "market/cuda_options_environment.cu"  // NOLINT(bugprone-suspicious-include)
#include "market/options_environment.h"
#include "market/options_test_market.h"

namespace tandem {
namespace {

constexpr int64_t kCount = 70;  // one block and a part of another

struct KernelArrays {
  std::vector<OptionsState> states = std::vector<OptionsState>(kCount);
  std::vector<float> actions = std::vector<float>(kCount), rewards = actions,
                     seen = std::vector<float>(kCount * kOwnFeatures);
  std::vector<int32_t> idle = std::vector<int32_t>(kCount), ends = idle, rows = idle;

  std::byte* bytes() { return reinterpret_cast<std::byte*>(states.data()); }
  RolloutEnvironments shard() {
    return {bytes(), actions.data(), idle.data(), rewards.data(), ends.data(), seen.data(), rows.data()};
  }
};

// What a learner on the CPU does.
void step_on_cpu(const OptionsEnvironment& environment, KernelArrays& a, const RandomKey& key) {
  std::vector<Outcome> outcomes(kCount);
  for (size_t e = 0; e < kCount; ++e)
    if (a.idle[e] == 0) outcomes[e] = environment.step_one(a.states[e], static_cast<int32_t>(a.actions[e]));
  environment.observe(a.bytes(), a.seen.data(), kCount);
  environment.table_rows(a.bytes(), a.rows.data(), kCount);
  environment.reset(a.bytes(), kCount, key, outcomes.data());
  for (size_t e = 0; e < kCount; ++e) {
    a.rewards[e] = outcomes[e].reward;
    a.ends[e] = static_cast<int32_t>(outcomes[e].end);
  }
}

TEST(OptionsKernel, StepsARolloutAsTheCpuDoes) {
  const OptionsTestMarket market = random_options_market(3, 120, 21, 0.04);
  const OptionsRules rules{.order_share = 0.2, .episode = 40, .multi_leg = 1};
  const OptionsEnvironment environment(market.view(), rules);
  const RolloutClock clock{.key_steps = 3, .horizon = 16};
  KernelArrays cpu, gpu;
  environment.reset(cpu.bytes(), kCount, {1, 0, 0, 0}, nullptr);
  gpu.states = cpu.states;
  int64_t ended = 0;
  for (int64_t time = 0; time < 160; ++time) {
    for (size_t e = 0; e < kCount; ++e) {
      cpu.actions[e] = static_cast<float>(random_below({2, static_cast<uint64_t>(time), 0, 0}, e, 91));
      cpu.idle[e] = cpu.ends[e];
    }
    gpu.actions = cpu.actions;
    gpu.idle = cpu.idle;
    const int64_t rollout = time / clock.horizon, t = time % clock.horizon;
    step_on_cpu(environment, cpu, {17, static_cast<uint64_t>(time), 4, 5});
    // Captured with the key of the run's first step: seed and step are those of now, shard and site its own.
    const RandomKey now{17, static_cast<uint64_t>(rollout * clock.key_steps), 99, 99};
    const RandomSource captured({17, 0, 4, 5}, &now);
    cuda_on_cpu::last_thread_first = time % 2 == 1;
    cuda::step_options_rollout(gpu.shard(), kCount, environment.market(), rules, clock, captured, t, nullptr);
    cuda_on_cpu::last_thread_first = false;
    ASSERT_EQ(std::memcmp(cpu.states.data(), gpu.states.data(), kCount * sizeof(OptionsState)), 0) << time;
    ASSERT_EQ(cpu.rewards, gpu.rewards) << time;
    ASSERT_EQ(cpu.ends, gpu.ends) << time;
    ASSERT_EQ(cpu.rows, gpu.rows) << time;
    ASSERT_EQ(cpu.seen, gpu.seen) << time;
    for (const int32_t end : gpu.ends) ended += end != 0;
  }
  EXPECT_GT(ended, 100);
}

}  // namespace
}  // namespace tandem
