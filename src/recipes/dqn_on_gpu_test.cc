// The DQN's kernels, compiled for the CPU and driven by the engine as on a GPU (kernels/gpu/emulator.h).
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "engine/snapshot.h"
#include "recipes/cuda_web_environment.cu"
#include "recipes/emulated_dqn.h"
#include "rl/dqn/gpu/after_update.cu"
#include "rl/dqn/gpu/fused_net.cu"
#include "rl/dqn/gpu/layers.cu"
#include "rl/dqn/gpu/learn.cu"
#include "rl/dqn/gpu/replay_store.cu"

namespace tandem {

namespace {

// Launchers that count their calls.
void queue_counted_act(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work, GpuAdvance advance,
                       CUstream_st* stream) {
  ++queued_calls.act;
  cuda::queue_act(shape, offsets, work, advance, stream);
}
void queue_counted_serve(const DqnShape& shape, const DqnWork& work, const ServedDraws& draws, CUstream_st* stream) {
  ++queued_calls.serve;
  cuda::queue_serve(shape, work, draws, stream);
}
void queue_counted_receive(const DqnShape& shape, const DqnWork& work, const std::byte* rows, CUstream_st* stream) {
  ++queued_calls.receive;
  cuda::queue_receive(shape, work, rows, stream);
}
void queue_counted_learn(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work, float* gradient,
                         float* tail, CUstream_st* stream) {
  ++queued_calls.learn;
  cuda::queue_learn(shape, offsets, work, gradient, tail, stream);
}
void queue_counted_packing(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work, CUstream_st* stream) {
  ++queued_calls.pack;
  cuda::queue_pack_weights(shape, offsets, work, stream);
}

}  // namespace

const KernelTables& EmulatedDqnGpu::kernel_tables() const {
  static const DqnKernels dqn{cuda::queue_observe,  queue_counted_act,    cuda::queue_draws,
                              cuda::queue_acted,    queue_counted_serve,  queue_counted_receive,
                              queue_counted_learn,  cuda::queue_combined, cuda::queue_after_update,
                              queue_counted_packing};
  static const WebKernels web{cuda::advance_web};
  static const KernelTables tables = KernelTables().add(dqn).add(web);
  return tables;
}

namespace {

// GEMMs in blocks of so many tiles.
struct TilesOfBlock {
  explicit TilesOfBlock(const char* tiles) { ::setenv("TANDEM_DQN_TILES", tiles, 1); }
  ~TilesOfBlock() { ::unsetenv("TANDEM_DQN_TILES"); }
};

// A GPU of so many SMs.
struct SmCount {
  explicit SmCount(int count) { cuda::emulated_sm_count = count; }
  ~SmCount() { cuda::emulated_sm_count = before; }
  const int before = cuda::emulated_sm_count;
};

// ---- environments ----

// All six, as a GPU moves them on, beside the host's.
void expect_environments_like_the_hosts(bool by_warps, bool backwards) {
  constexpr int kEach = 5, kSteps = 70;  // episodes end on the way
  std::vector<WebTestState> states(kWebAgents * kEach), expected = states;
  std::vector<int32_t> actions(states.size()), ends(states.size());
  std::vector<float> rewards(states.size()), seen(states.size() * kObservation), expected_seen = seen;
  std::vector<ShardEnvironments> shards;
  for (int k = 0; k < kWebAgents; ++k) {
    const size_t at = static_cast<size_t>(k) * kEach;
    shards.push_back({k, 7, reinterpret_cast<std::byte*>(&states[at]), &actions[at], &rewards[at], &ends[at],
                      &seen[at * kObservation]});
    reset_web(k, &states[at], kEach, {.seed = 3}, 0);
  }
  expected = states;
  int over[kWebAgents] = {};
  const auto same = [](const auto& a, const auto& b) {  // to the bit
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
  };
  cuda_on_cpu::last_thread_first = backwards;
  for (uint64_t step = 0; step < kSteps; ++step) {
    for (size_t i = 0; i < actions.size(); ++i)
      actions[i] = static_cast<int32_t>(random_below({.seed = 5, .step = step}, i, kActions));
    const RandomKey key{.seed = 4, .step = step};
    const cuda::Sites sites{2, 3};
    if (by_warps)
      TANDEM_LAUNCH("", cuda::advance_by_warps, dim3(2, kWebAgents), dim3(cuda::kWarpsOfBlock * 32), nullptr,
                    shards.data(), kEach, &key, sites, false);
    else
      TANDEM_LAUNCH("", cuda::advance, dim3(1, kWebAgents), dim3(cuda::kThreadsOfBlock), nullptr, shards.data(), kEach,
                    &key, sites, false);
    for (int k = 0; k < kWebAgents; ++k) {
      const size_t at = static_cast<size_t>(k) * kEach;
      std::vector<StepResult> results(kEach);
      RandomKey own = key;
      own.shard = 7;
      own.site = sites.step;
      step_web(k, &expected[at], &actions[at], results.data(), kEach, own);
      own.site = sites.reset;
      reset_web(k, &expected[at], kEach, own, 0, results.data());
      observe_web(k, &expected[at], &expected_seen[at * kObservation], kEach);
      for (int e = 0; e < kEach; ++e) {
        ASSERT_EQ(std::bit_cast<uint32_t>(rewards[at + e]), std::bit_cast<uint32_t>(results[e].reward))
            << "environment " << k << " step " << step;
        ASSERT_EQ(ends[at + e] == static_cast<int32_t>(End::kTerminated), results[e].done != 0);
        over[k] += results[e].done;
      }
    }
    ASSERT_TRUE(same(seen, expected_seen)) << step;
    ASSERT_TRUE(same(states, expected)) << step;
  }
  cuda_on_cpu::last_thread_first = false;
  for (int k = 0; k < kWebAgents; ++k) EXPECT_GT(over[k], 0) << "no episode ended in environment " << k;
}
TEST(EnvironmentsOnAGpu, AThreadEachStepsAsTheHostDoes) { expect_environments_like_the_hosts(false, false); }
TEST(EnvironmentsOnAGpu, AWarpEachStepsAsTheHostDoes) {
  expect_environments_like_the_hosts(true, false);
  expect_environments_like_the_hosts(true, true);
}

// ---- the learner ----

TEST_F(EmulatedDqn, AFusedStepGivesTheBitsOfItsPhases) {
  for (const auto& [shards, optimizer] : {std::pair{1, "adam"}, {6, "adam"}, {2, "sgd"}}) {
    WebAgentSettings settings = small(shards);
    settings.optimizer.kind = optimizer;
    const auto fused = trained<Dqn>(settings, {"analysis"}, 4);
    cuda_on_cpu::last_thread_first = true;  // nor does the order of a block's threads matter
    const auto phases = trained<ByPhases>(settings, {"analysis"}, 4);
    cuda_on_cpu::last_thread_first = false;
    SCOPED_TRACE(shards);
    expect_equal(*fused, *phases);
  }
}

// tf32, bf16 and fp16 use the same kernels, fused and by phases, and learn nearly what fp32 does; of fp16 the loss is
// scaled, and a step whose gradient is too large for it is skipped.
TEST_F(EmulatedDqn, EveryPrecisionRunsOnTheGpuAndStaysNearFp32) {
  struct Learned {
    double loss, mean_q, norm;
    at::Tensor gradient, errors;  // the first but for a factor
  };
  const auto learned = [](const std::string& precision, int shards) {
    WebAgentSettings settings = small(shards);
    settings.precision = precision;
    settings.amp.initial_scale = 1024;
    const auto fused = trained<Dqn>(settings, {"analysis"}, 0), phases = trained<ByPhases>(settings, {"analysis"}, 0);
    const StepRecord one = fused->step();
    phases->step();
    EXPECT_EQ(one.phase_seconds.front().first, "step") << "not one queue of work: " << precision;
    EXPECT_EQ(one.loss_scale, precision == "fp16" ? 1024 : 1);
    EXPECT_FALSE(one.skipped);
    expect_equal(*fused, *phases);
    const auto all = all_of(*fused);
    double mean_q = 0;
    for (const auto& [name, value] : one.metrics)
      if (name == "mean_q") mean_q = value;
    return Learned{one.loss, mean_q, one.grad_norm, all.at("optimizer.0"), all.at("replicated.errors")};
  };
  const auto expect_near = [&](const std::string& precision, int shards, const Learned& exact, double off) {
    const Learned is = learned(precision, shards);
    const auto apart = [](const at::Tensor& a, const at::Tensor& b) {
      return ((a - b).norm() / b.norm()).item<double>();
    };
    EXPECT_NEAR(is.loss / exact.loss, 1, off) << precision;
    EXPECT_NEAR(is.mean_q / exact.mean_q, 1, 5 * off) << precision;
    EXPECT_NEAR(is.norm / exact.norm, 1, off) << precision;
    EXPECT_LT(apart(is.errors, exact.errors), off) << precision;
    EXPECT_LT(apart(is.gradient, exact.gradient), 5 * off) << precision;
    EXPECT_GT(apart(is.gradient, exact.gradient), 0) << precision << " is fp32";
  };
  const Learned few = learned("fp32", 2), paired = learned("fp32", 8);
  expect_near("tf32", 2, few, 2e-3);
  expect_near("fp16", 2, few, 2e-3);
  expect_near("bf16", 8, paired, 2e-2);
}

TEST_F(EmulatedDqn, AGradientTooLargeForFp16IsSkippedAndTheScaleHalved) {
  WebAgentSettings settings = small(2);
  settings.precision = "fp16";
  settings.amp.initial_scale = 0x1p22;
  const auto fused = trained<Dqn>(settings, {"execution"}, 0), phases = trained<ByPhases>(settings, {"execution"}, 0);
  double scale = 0x1p22;
  bool skipped = true;
  for (int i = 0; i < 8 && skipped; ++i) {
    const StepRecord one = fused->step(), other = phases->step();
    EXPECT_EQ(one.skipped, other.skipped) << i;
    EXPECT_EQ(one.loss_scale, other.loss_scale) << i;
    skipped = one.skipped;
    EXPECT_EQ(one.loss_scale, scale) << i;
    if (skipped) scale /= 2;
  }
  EXPECT_LT(scale, 0x1p22) << "nothing was too large";
  EXPECT_FALSE(skipped);
  expect_equal(*fused, *phases);
}

TEST_F(EmulatedDqn, AfterARollBackFusedStepsAndPhasesAgree) {
  WebAgentSettings settings = small(2);
  settings.optimizer.learning_rate = 1e30;  // weights that are no numbers after the first update
  settings.nan.patience = 2;
  settings.nan.max_rollbacks = 10;
  settings.nan.rollback_every = 1000;  // to the weights of the beginning, which are other ones
  const auto fused = trained<Dqn>(settings, {"evolution"}, 0), phases = trained<ByPhases>(settings, {"evolution"}, 0);
  int skipped = 0, rolled_back = 0;
  for (int i = 0; i < 6; ++i) {
    const StepRecord one = fused->step(), other = phases->step();
    EXPECT_EQ(one.skipped, other.skipped) << i;
    skipped += one.skipped;
    rolled_back += fused->note().find("rolled back") != std::string::npos;
    expect_equal(*fused, *phases);
  }
  EXPECT_GT(skipped, 2);
  EXPECT_GT(rolled_back, 0);
}

// A roll-back puts other weights there, which the step itself does not see.
TEST_F(EmulatedDqn, WeightsArePackedAtFirstAndAfterEverySkippedUpdate) {
  WebAgentSettings settings = small(2);
  settings.precision = "bf16";
  settings.optimizer.learning_rate = 1e30;
  settings.nan.patience = 2;
  settings.nan.max_rollbacks = 10;
  settings.nan.rollback_every = 1000;
  const auto fused = trained<Dqn>(settings, {"evolution"}, 0);
  int skipped = 0;
  for (int i = 0; i < 6; ++i) {
    queued_calls.pack = 0;
    const bool now = fused->step().skipped;
    EXPECT_EQ(queued_calls.pack, (i == 0 ? 1 : 0) + (now ? 1 : 0)) << i;
    skipped += now;
  }
  EXPECT_GT(skipped, 2);
  EXPECT_LT(skipped, 6);
}

// Every stored reward is NaN, or a layer of the target network alone, whose values nothing flows back through: whoever
// learns from them must be stopped by the guard, however it computes.
template <class Kind>
void expect_skipped(const WebAgentSettings& settings, bool rewards) {
  auto loop = trained<Kind>(settings, {"evolution"}, 0);
  if (rewards) {
    for (int shard = 0; shard < loop->state().shards(); ++shard)
      for (const NamedTensor& t : loop->state().shard_state(shard))
        if (t.name.ends_with("replay.rows")) t.tensor.view(at::kFloat).select(-1, 0).fill_(std::nanf(""));
  } else {
    for (const ParameterEntry& entry : loop->state().parameter_entries())
      if (entry.name == "hidden1.weight")
        std::ranges::fill(loop->state().target_network(0).subspan(static_cast<size_t>(entry.offset), 1), std::nanf(""));
  }
  EXPECT_TRUE(loop->step().skipped) << rewards;
  EXPECT_NE(loop->note().find("NaN or Inf in the gradient of"), std::string::npos) << loop->note();
}

TEST_F(EmulatedDqn, TheShapeOfTheBlocksDoesNotMatter) {
  for (const int shards : {4, 8}) {  // eight: a tree of pairs
    WebAgentSettings settings = small(shards);
    settings.net.hidden = {132, 64};  // tiles of which a part is beyond the end
    const auto small_blocks = trained<Dqn>(settings, {"analysis"}, 2);
    const TilesOfBlock two("2");
    expect_equal(*small_blocks, *trained<Dqn>(settings, {"analysis"}, 2));
  }
}

TEST_F(EmulatedDqn, BlocksOfFourTilesLearnTheSame) {
  WebAgentSettings settings = small(8);
  settings.batch_size = 256;
  settings.environments = 32;
  settings.capacity = 8 * 32 * 8;
  settings.net.hidden = {128, 128};  // nothing is cut
  settings.net.head = 64;
  const auto small_blocks = trained<Dqn>(settings, {"analysis"}, 1);
  const TilesOfBlock four("4");
  expect_equal(*small_blocks, *trained<Dqn>(settings, {"analysis"}, 1));
  const SmCount many(132);  // the loss by four warps a row
  expect_equal(*small_blocks, *trained<Dqn>(settings, {"analysis"}, 1));
}

TEST_F(EmulatedDqn, NanInDataOrTargetReachesTheGuardOnEveryPath) {
  const WebAgentSettings settings = small(2);
  for (const bool rewards : {true, false}) {
    use_gpu(std::make_unique<EmulatedDqnGpu>());
    expect_skipped<Dqn>(settings, rewards);
    expect_skipped<ByPhases>(settings, rewards);
    use_gpu(nullptr);
    expect_skipped<Dqn>(settings, rewards);
  }
}

TEST_F(EmulatedDqn, InBf16AgentsOfOneLaunchLearnWhatTheyLearnAlone) {
  WebAgentSettings settings = small(2);
  settings.precision = "bf16";
  const std::vector<std::string> names{"observation", "analysis", "evolution"};
  const auto all = all_of(*trained<Dqn>(settings, names, 1));
  const auto alone = trained<Dqn>(settings, {"evolution"}, 1);
  for (const NamedTensor& t : alone->state().model_tensors())
    EXPECT_TRUE(at::equal(t.tensor, all.at("evolution." + t.name))) << t.name;
}

TEST_F(EmulatedDqn, AgentsSideBySideLearnWhatTheyLearnAlone) {
  const WebAgentSettings settings = small();
  const std::vector<std::string> names{"observation", "analysis", "evolution"};
  const auto together = trained<Dqn>(settings, names, 2), by_phases = trained<ByPhases>(settings, names, 2);
  expect_equal(*together, *by_phases);
  const auto all = all_of(*together);
  for (const std::string& name : names) {
    const auto alone = trained<Dqn>(settings, {name}, 2);
    for (const NamedTensor& t : alone->state().model_tensors())
      EXPECT_TRUE(at::equal(t.tensor, all.at(name + "." + t.name))) << name << " " << t.name;
  }
}

TEST_F(EmulatedDqn, TheOrderInWhichShardsAreVisitedDoesNotMatter) {
  const WebAgentSettings settings = small();
  const auto straight = trained<ByPhases>(settings, {"execution"}, 2);
  auto crooked = trained<ByPhases>(settings, {"execution"}, 0);
  crooked->visit_in_order({2, 0, 3, 1});
  for (int i = 0; i < 2; ++i) crooked->step();
  expect_equal(*straight, *crooked);
}

TEST_F(EmulatedDqn, KernelsActStoreDrawAndLearnAsTheCpuDoes) {
  for (const char* agent : {"requirements", "generation", "execution", "observation", "analysis", "evolution"}) {
    WebAgentSettings settings = small(2);
    if (agent == std::string("analysis")) {  // 43 rows of a shard: 32, 8 and three; returns of more steps
      settings.batch_size = 86;
      settings.n_step = 5;
    }
    use_gpu(std::make_unique<EmulatedDqnGpu>());
    const auto gpu = trained<Dqn>(settings, {agent}, 1);
    use_gpu(nullptr);
    const auto cpu = trained<Dqn>(settings, {agent}, 1);
    const auto a = all_of(*gpu), b = all_of(*cpu);
    for (const auto& [name, tensor] : a) {
      const at::Tensor& other = b.at(name);
      // Environments, rings, priorities, draws.
      if (name.starts_with("shard.") || name == "replicated.priority_sums") {
        EXPECT_TRUE(at::equal(tensor, other)) << agent << " " << name;
      } else if (name == "replicated.errors") {
        EXPECT_TRUE(at::allclose(tensor, other, 1e-4, 1e-5)) << agent;
      } else if (name == "optimizer.0") {  // the gradient, but for a factor
        for (const ParameterEntry& entry : cpu->state().parameter_entries()) {
          const at::Tensor g = tensor.narrow(0, entry.offset, entry.count),
                           h = other.narrow(0, entry.offset, entry.count);
          EXPECT_LT((g - h).abs().max().item<float>(), 1e-5f * other.abs().max().item<float>())
              << agent << " " << entry.name;
        }
      }
    }
  }
}

TEST(AgentsSideBySide, LearnOnTheCpuWhatTheyLearnAlone) {
  set_determinism();
  const WebAgentSettings settings = small();
  const std::vector<std::string> names{"generation", "analysis"};
  const auto together = trained<Dqn>(settings, names, 8);
  const auto all = all_of(*together);
  for (const std::string& name : names) {
    const auto alone = trained<Dqn>(settings, {name}, 8);
    for (const NamedTensor& t : alone->state().model_tensors())
      EXPECT_TRUE(at::equal(t.tensor, all.at(name + "." + t.name))) << name << " " << t.name;
  }
}

}  // namespace
}  // namespace tandem
