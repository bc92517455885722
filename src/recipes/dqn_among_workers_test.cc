// The DQN's fused step where several workers hold shards and their GPUs sum by themselves: workers are threads, their
// kernels run in the emulator, the sums by the CPU's kernel.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "engine/snapshot.h"
#include "engine/worker_threads.h"
#include "kernels/float_bits.h"
#include "recipes/emulated_dqn.h"

namespace tandem {
namespace {

std::atomic<int> sums_left = 0, sums_held = 0;  // since others were late; since they were with one before

std::atomic<int> dies_before_sum = 0;
thread_local bool this_worker_dies = false;

// Where nothing of a sum is made yet, nobody may count on what lies there.
void spoil(const PeerSum& sum) {
  const uint64_t tag = peer_tag(sum.generation, sum.control->sequence + static_cast<uint64_t>(sum.ahead), sum.blocks);
  const PeerFlag* const mine = sum.flags + static_cast<int64_t>(sum.me) * kMostPeerBlocks;
  if (std::any_of(mine, mine + sum.blocks, [tag](const PeerFlag& flag) { return flag.reduced == tag; })) return;
  std::fill_n(sum.total, sum.floats, float_of_bits(0x7fabcdefu));
  std::fill_n(sum.total_integers, sum.counts + sum.maxima, int64_t{0x7edcba9876543210});
}

const PeerKernels& counting_kernels() {
  static const PeerKernels kernels{[](const PeerSum& sum, void* stream) {
                                     if (this_worker_dies && sum.ahead == dies_before_sum && *sum.bad != 0)
                                       throw std::runtime_error("dies");
                                     if (sum.ahead > 0 && *sum.bad == 0) ++sums_held;
                                     PeerKernels::cpu().queue(sum, stream);
                                     if (!sum.bad || *sum.bad != 0) return;
                                     ++sums_left;
                                     spoil(sum);
                                   },
                                   PeerKernels::cpu().most_blocks};
  return kernels;
}

ShmShape shape_of(const WebAgentSettings& settings, std::vector<ShardRange> ranges) {
  return {.shards = static_cast<int>(settings.shards),
          .ranges = std::move(ranges),
          .max_floats = 1 << 18,
          .max_counts = 256,
          .max_maxima = 64,
          .max_joined = 1 << 16,
          .exchange = true};
}

// Where weights are packed for the tensor cores.
struct BlocksOf16Rows {
  BlocksOf16Rows() { ::setenv("TANDEM_DQN_TILES", "16", 1); }
  ~BlocksOf16Rows() { ::unsetenv("TANDEM_DQN_TILES"); }
};

struct Steps {
  std::vector<double> losses;
  std::vector<std::pair<std::string, double>> metrics;
  void take(const StepRecord& record) {
    losses.push_back(record.loss);
    metrics.insert(metrics.end(), record.metrics.begin(), record.metrics.end());
  }
};

struct Workers {
  Workers(const WebAgentSettings& settings, const std::vector<std::string>& names, std::vector<ShardRange> ranges)
      : between(shape_of(settings, ranges), Between::kPeers, counting_kernels()), steps(ranges.size()) {
    for (size_t me = 0; me < ranges.size(); ++me)
      make.emplace_back([this, &settings, names, me, range = ranges[me]] {
        return std::make_unique<TrainLoop>(settings, std::make_unique<Dqn>(settings, environments_of(names)), range,
                                           between.combine(me));
      });
  }
  void train(int count) {
    while (loops.size() < make.size()) loops.push_back(make[loops.size()]());
    std::vector<std::thread> threads;
    for (size_t me = 0; me < loops.size(); ++me)
      threads.emplace_back([this, me, count] {
        for (int i = 0; i < count; ++i) steps[me].take(loops[me]->step());
      });
    for (std::thread& thread : threads) thread.join();
  }

  WorkerThreads between;
  std::vector<std::function<std::unique_ptr<TrainLoop>()>> make;
  std::vector<std::unique_ptr<TrainLoop>> loops;
  std::vector<Steps> steps;
};

std::map<std::string, at::Tensor> held_by(TrainLoop& loop) {
  std::map<std::string, at::Tensor> all;
  const auto put = [&](const std::vector<NamedTensor>& tensors, const std::string& behind) {
    for (const NamedTensor& t : tensors) all[t.name + behind] = t.tensor;
  };
  put(loop.state().model_tensors(), "");
  put(loop.state().replicated_state(), "");
  for (int shard = loop.state().mine().first; shard < loop.state().mine().last; ++shard)
    put(loop.state().shard_state(shard), " of shard " + std::to_string(shard));
  return all;
}

// Weights, optimizer, targets, replay, environments, and what each step reports.
void expect_those_of_one(const WebAgentSettings& settings, const std::vector<std::string>& names, int count,
                         const Workers& workers) {
  TrainLoop one(settings, std::make_unique<Dqn>(settings, environments_of(names)),
                ShardPlan::balance(static_cast<int>(settings.shards), std::vector{1.0}));
  Steps want;
  for (int i = 0; i < count; ++i) want.take(one.step());
  const auto expected = held_by(one);
  for (size_t me = 0; me < workers.loops.size(); ++me) {
    SCOPED_TRACE(me);
    EXPECT_EQ(workers.steps[me].losses, want.losses);
    EXPECT_EQ(workers.steps[me].metrics, want.metrics);
    for (const auto& [name, tensor] : held_by(*workers.loops[me]))
      EXPECT_TRUE(at::equal(tensor, expected.at(name))) << name;
  }
}

TEST_F(EmulatedDqn, WorkersWhoseGpusSumByThemselvesGiveTheBitsOfOne) {
  constexpr int kSteps = 6;
  const WebAgentSettings settings = small(4);
  for (const auto& ranges :
       std::vector<std::vector<ShardRange>>{{{0, 2}, {2, 4}}, {{0, 1}, {1, 4}}, {{0, 1}, {1, 2}, {2, 4}}}) {
    SCOPED_TRACE(ranges[1].last);
    queued_calls.clear();
    Workers workers(settings, {"analysis"}, ranges);
    workers.train(kSteps);
    const int served = queued_calls.serve, received = queued_calls.receive;
    EXPECT_GE(received, static_cast<int>(ranges.size()) * (kSteps - 2)) << "the phases ran instead";
    EXPECT_GT(served, 0);
    expect_those_of_one(settings, {"analysis"}, kSteps, workers);
  }
}

TEST_F(EmulatedDqn, SixAgentsOnTwoWorkersWhoseGpusSumByThemselvesGiveTheBitsOfOne) {
  const WebAgentSettings settings = small(2);
  Workers workers(settings, WebAgentSettings::all_agents(), {{0, 1}, {1, 2}});
  workers.train(4);
  expect_those_of_one(settings, WebAgentSettings::all_agents(), 4, workers);
}

TEST_F(EmulatedDqn, InBf16WorkersWhoseGpusSumByThemselvesGiveTheBitsOfOne) {
  WebAgentSettings settings = small(4);
  settings.precision = "bf16";
  const BlocksOf16Rows packed_weights;
  for (const auto& ranges : std::vector<std::vector<ShardRange>>{{{0, 2}, {2, 4}}, {{0, 1}, {1, 4}}}) {
    Workers workers(settings, {"evolution"}, ranges);
    queued_calls.pack = 0;
    workers.train(5);
    EXPECT_GT(queued_calls.pack, 0);
    expect_those_of_one(settings, {"evolution"}, 5, workers);
  }
}

// One of them is no GPU, say: all go through the phases.
TEST_F(EmulatedDqn, WhereOneWorkerCannotQueueAllSumsOfAStepNoneDoes) {
  const WebAgentSettings settings = small(4);
  queued_calls.clear();
  Workers workers(settings, {"analysis"}, {{0, 2}, {2, 4}});
  workers.between.on_cpu = 1;
  workers.train(4);
  EXPECT_EQ(queued_calls.receive, 0);
  expect_those_of_one(settings, {"analysis"}, 4, workers);
}

// A wait that ends at once: every sum is left and queued again until the other is there, and so is what comes after it.
TEST_F(EmulatedDqn, WhoWaitsForALateWorkerInTheMiddleOfAStepDoesNothingTwice) {
  const WebAgentSettings settings = small(4);
  sums_held = 0;
  Workers workers(settings, {"analysis"}, {{0, 1}, {1, 4}});
  workers.between.wait_ns = 1;
  workers.train(6);
  EXPECT_GT(sums_held, 0);
  expect_those_of_one(settings, {"analysis"}, 6, workers);
}

TEST_F(EmulatedDqn, AWorkerWhoseOthersAreGoneLeavesTheStep) {
  const WebAgentSettings settings = small(4);
  Workers workers(settings, {"analysis"}, {{0, 2}, {2, 4}});
  workers.train(4);
  sums_left = 0;
  workers.between.abandon_when([] { return sums_left > 0; });
  EXPECT_THROW(workers.loops[0]->step(), MembersChanged);
  EXPECT_EQ(workers.loops[0]->steps_done(), 4);
}

// One dies between two sums of its step. The others leave theirs, and go on from a snapshot with a link of their own.
TEST_F(EmulatedDqn, AfterADeathInTheMiddleOfAStepASnapshotGivesTheBitsOfOne) {
  const WebAgentSettings settings = small(4);
  for (const int sum : {1, 2}) {
    TrainLoop one(settings, std::make_unique<Dqn>(settings, environments_of({"analysis"})),
                  ShardPlan::balance(4, std::vector{1.0}));
    for (int i = 0; i < 4; ++i) one.step();
    const Snapshot fourth = take_snapshot(one);
    for (int i = 0; i < 4; ++i) one.step();
    const auto expected = held_by(one);

    Workers workers(settings, {"analysis"}, {{0, 2}, {2, 4}});
    workers.train(5);
    sums_left = 0;
    dies_before_sum = sum;
    workers.between.abandon_when([&] { return workers.between.dead && sums_left > 0; });
    std::thread dies([&] {
      this_worker_dies = true;
      EXPECT_THROW(workers.loops[1]->step(), std::runtime_error);
      sums_left = 0;
      workers.between.dead = true;
    });
    EXPECT_THROW(workers.loops[0]->step(), MembersChanged);
    dies.join();

    WorkerThreads next(shape_of(settings, {{0, 1}, {1, 4}}), Between::kPeers, counting_kernels());
    const ShardRange ranges[] = {{0, 1}, {1, 4}};
    for (size_t me = 0; me < 2; ++me) {
      TrainLoop& loop = *workers.loops[me];
      loop.reassign(ranges[me], next.combine(me));
      read_snapshot(loop, snapshot_layout(loop), fourth.block);
    }
    queued_calls.receive = 0;
    workers.train(4);
    EXPECT_GT(queued_calls.receive, 0);
    for (const auto& loop : workers.loops)
      for (const auto& [name, tensor] : held_by(*loop)) EXPECT_TRUE(at::equal(tensor, expected.at(name))) << name;
  }
}

// Gradients that overflow are skipped, and weights go back to older ones.
TEST_F(EmulatedDqn, WorkersWhoseGpusSumByThemselvesSkipWhatOneSkips) {
  WebAgentSettings settings = small(4);
  settings.optimizer.learning_rate = 1e30;
  settings.nan.patience = 2;
  settings.nan.rollback_every = 2;
  settings.nan.max_rollbacks = 100;
  constexpr int kSteps = 8;
  Workers workers(settings, {"analysis"}, {{0, 1}, {1, 4}});
  workers.train(kSteps);
  const auto one = trained<Dqn>(settings, {"analysis"}, kSteps);
  const auto expected = held_by(*one);
  EXPECT_TRUE(std::ranges::any_of(workers.steps[0].losses, [](double loss) { return !std::isfinite(loss); }));
  for (const auto& loop : workers.loops)
    for (const auto& [name, tensor] : held_by(*loop))
      EXPECT_TRUE(at::equal(tensor.nan_to_num(-7), expected.at(name).nan_to_num(-7))) << name;
}

// A replay queues the work again; nothing runs while it is captured.
class ReplayingWorkers : public EmulatedDqnGpu {
 public:
  std::unique_ptr<CudaGraph> capture(const std::function<void()>& work, std::string*) override {
    struct Graph : CudaGraph {
      Graph(std::function<void()> w, std::atomic<int>& n) : work(std::move(w)), replayed(n) {}
      void replay() override {
        ++replayed;
        work();
      }
      std::function<void()> work;
      std::atomic<int>& replayed;
    };
    ++captures;
    return std::make_unique<Graph>(work, replays);
  }
};

TEST_F(EmulatedDqn, AStepIsOneGraphOnEachOfSeveralWorkers) {
  const WebAgentSettings settings = small(4);
  for (const auto& ranges :
       std::vector<std::vector<ShardRange>>{{{0, 2}, {2, 4}}, {{0, 1}, {1, 4}}, {{0, 1}, {1, 2}, {2, 4}}}) {
    auto made = std::make_unique<ReplayingWorkers>();
    ReplayingWorkers& gpu = *made;
    use_gpu(std::move(made));
    Workers workers(settings, {"analysis"}, ranges);
    workers.train(4);  // phases until the GPUs have met, then a step eagerly; then captured
    const int captures = gpu.captures, replays = gpu.replays;
    workers.train(3);
    EXPECT_EQ(gpu.captures, captures);
    EXPECT_EQ(gpu.replays, replays + 3 * static_cast<int>(ranges.size())) << "one launch for each worker's step";
    expect_those_of_one(settings, {"analysis"}, 7, workers);
  }
}

}  // namespace
}  // namespace tandem
