// The learner on an environment whose solution is known: a corridor of five cells.
#include "rl/dqn/dqn.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>
#include <numeric>

#include "engine/determinism.h"
#include "engine/snapshot.h"
#include "engine/train_loop.h"
#include "rl/dqn/dueling_net.h"
#include "rl/replay/priority.h"

namespace tandem {
namespace {

// Step right to the end: reward 1 and over. Left or right costs 0.01. After `limit` steps an episode is truncated.
class Corridor : public Environment {
 public:
  struct State {
    int32_t cell, time;
  };
  static constexpr int32_t kCells = 5, kLimit = 20;
  int64_t observation_size() const override { return kCells; }
  int64_t actions() const override { return 2; }
  int64_t state_bytes() const override { return sizeof(State); }
  int64_t max_episode_steps() const override { return kLimit; }
  void reset(std::byte* states, int64_t n, const RandomKey& key, const Outcome* only_ended) const override {
    State* s = reinterpret_cast<State*>(states);
    for (int64_t i = 0; i < n; ++i)
      if (!only_ended || only_ended[i].end != End::kNone)
        s[i] = {static_cast<int32_t>(random_below(key, i, kCells - 1)), 0};
  }
  void observe(const std::byte* states, float* out, int64_t n) const override {
    const State* s = reinterpret_cast<const State*>(states);
    for (int64_t i = 0; i < n; ++i)
      for (int32_t c = 0; c < kCells; ++c) out[i * kCells + c] = s[i].cell == c ? 1.0f : 0.0f;
  }
  void step(std::byte* states, const int32_t* actions, Outcome* out, int64_t n, const RandomKey&) const override {
    State* s = reinterpret_cast<State*>(states);
    for (int64_t i = 0; i < n; ++i) {
      s[i].cell = std::max(0, s[i].cell + (actions[i] ? 1 : -1));
      const bool there = s[i].cell == kCells - 1;
      out[i] = {.reward = there ? 1.0f : -0.01f,
                .end = there                   ? End::kTerminated
                       : ++s[i].time == kLimit ? End::kTruncated
                                               : End::kNone};
    }
  }
};

DqnSettings small() {
  DqnSettings s;
  s.shards = 4;
  s.batch_size = 32;
  s.environments = 3;
  s.capacity = 4 * 3 * 64;
  s.learning_starts = 200;
  s.net = {.hidden = {24, 16}, .head = 8, .dropout = 0.1};
  s.target_rate = 0.05;
  s.epsilon_steps = 200;
  s.beta_steps = 300;
  s.gamma = 0.9;
  s.optimizer.learning_rate = 3e-3;
  s.schedule.kind = "constant";
  s.seed = 3;
  return s;
}

std::unique_ptr<TrainLoop> loop_of(const DqnSettings& s, const std::vector<double>& workers = {1}) {
  set_determinism();
  s.check();
  return std::make_unique<TrainLoop>(s, std::make_unique<Dqn>(s, std::make_unique<Corridor>()),
                                     ShardPlan::balance(static_cast<int>(s.shards), workers));
}

std::string digest_after(const DqnSettings& s, int steps, const std::vector<double>& workers = {1},
                         std::vector<int> order = {}) {
  const auto loop = loop_of(s, workers);
  if (!order.empty()) loop->visit_in_order(std::move(order));
  while (loop->steps_done() < steps) loop->step();
  return digest_of(*loop);
}

TEST(Dqn, LearnsTheCorridorAndItsValues) {
  const DqnSettings s = small();
  const auto loop = loop_of(s);
  const Dqn& dqn = dynamic_cast<const Dqn&>(loop->recipe());
  while (loop->steps_done() < 600) loop->step();
  EXPECT_GT(dqn.evaluate(100, 1).mean, 0.95);
  const at::Tensor q = dqn.q_values(at::eye(Corridor::kCells));  // right: 1, 0.9 - 0.01, ...
  for (int64_t steps = 0; steps < 4; ++steps) {
    double want = 1;
    for (int64_t i = 0; i < steps; ++i) want = -0.01 + 0.9 * want;
    EXPECT_NEAR(q[3 - steps][1].item<double>(), want, 0.1);
    EXPECT_GT(q[3 - steps][1].item<float>(), q[3 - steps][0].item<float>());
  }
}

TEST(Dqn, HasOneDigestForEveryPlanAndOrder) {
  for (auto change : std::vector<std::function<void(DqnSettings&)>>{
           [](DqnSettings&) {}, [](DqnSettings& s) { s.accumulation = 2; },
           [](DqnSettings& s) { s.precision = "bf16"; }, [](DqnSettings& s) { s.precision = "fp16"; },
           [](DqnSettings& s) {
             s.net.attention = true;
             s.net.tokens = 4;
             s.net.attention_heads = 2;
           }}) {
    DqnSettings s = small();
    change(s);
    const std::string want = digest_after(s, 12);
    EXPECT_EQ(digest_after(s, 12, {1, 1}), want);
    EXPECT_EQ(digest_after(s, 12, {1, 0.5, 0.5}, {3, 1, 0, 2}), want);
    DqnSettings other = s;
    other.seed = 4;
    EXPECT_NE(digest_after(other, 12), want);
  }
}

TEST(Dqn, BatchedShardsReportWhoseNumbersAreNotFinite) {
  std::vector<std::string> notes;
  for (const std::vector<int>& order : {std::vector<int>{0, 1, 2, 3}, {1, 0, 2, 3}}) {  // batched, and one by one
    const auto loop = loop_of(small());
    loop->visit_in_order(order);
    for (const NamedTensor& t : loop->state().shard_state(2))
      if (t.name.ends_with("replay.rows")) t.tensor.view(at::kFloat).select(-1, 0).fill_(std::nanf(""));
    EXPECT_TRUE(loop->step().skipped);
    notes.push_back(loop->note());
  }
  EXPECT_NE(notes[0].find("in shard "), std::string::npos) << notes[0];
  EXPECT_EQ(notes[0], notes[1]);
}

TEST(Dqn, StoppedAtAnyStepAndGoingOnElsewhereKeepsEveryBit) {
  const DqnSettings s = small();
  const std::string want = digest_after(s, 8);
  for (int stop = 0; stop <= 8; ++stop) {
    const auto first = loop_of(s, {1, 1, 1});
    while (first->steps_done() < stop) first->step();
    const SnapshotLayout layout = snapshot_layout(*first);
    std::vector<std::byte> block(layout.bytes());
    write_part(*first, layout, block, 0, 1);
    const auto second = loop_of(s, {1, 1});
    read_snapshot(*second, layout, block);
    while (second->steps_done() < 8) second->step();
    EXPECT_EQ(digest_of(*second), want) << "stopped at " << stop;
  }
}

TEST(Dqn, ASnapshotInSharedMemoryHasTheSameBytesAlsoWhereTensorsAreLarge) {
  DqnSettings s = small();
  s.capacity = 400'000;
  const auto loop = loop_of(s, {1});
  loop->step();
  const SnapshotLayout layout = snapshot_layout(*loop);
  std::vector<std::byte> block(layout.bytes());
  write_part(*loop, layout, block, 0, 1);
  const SharedMemory memory = SharedMemory::create("test", layout.bytes());
  EXPECT_GT(write_part(*loop, layout, memory, 0, 1, 5), 0u) << "some went past the mapping";
  const size_t scalars = SnapshotLayout::kScalarBytes;
  EXPECT_EQ(std::memcmp(memory.bytes().data() + scalars, block.data() + scalars, block.size() - scalars), 0);
  EXPECT_EQ(SnapshotLayout::get_scalars(memory.bytes()).at("handled"), 5);
}

// The parts of the state by name, of all shards.
at::Tensor field(TrainLoop& loop, const std::string& name, int shard) {
  for (const NamedTensor& t : loop.state().shard_state(shard))
    if (t.name.find(name) != std::string::npos) return t.tensor;
  ADD_FAILURE() << "no field " << name;
  return {};
}
at::Tensor replicated(TrainLoop& loop, const std::string& name) {
  for (const NamedTensor& t : loop.state().replicated_state())
    if (t.name.find(name) != std::string::npos) return t.tensor;
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

TEST(Dqn, EveryDrawHasOneOwnerWhoGivesItItsNewPriority) {
  const DqnSettings s = small();
  const auto loop = loop_of(s);
  for (int step = 0; step < 30; ++step) {
    loop->step();
    std::vector<int> owners(s.batch_size, 0);
    for (int shard = 0; shard < 4; ++shard) {
      const at::Tensor drawn = field(*loop, "replay.drawn", shard);
      for (int64_t k = 0; k < s.batch_size; ++k) owners[k] += drawn.data_ptr<int32_t>()[k] >= 0 ? 1 : 0;
    }
    EXPECT_EQ(owners, std::vector<int>(s.batch_size, 1));
  }
  const at::Tensor errors = replicated(*loop, "errors").clone();
  std::vector<at::Tensor> drawn, written;
  for (int shard = 0; shard < 4; ++shard) {
    drawn.push_back(field(*loop, "replay.drawn", shard).clone());
    written.push_back(field(*loop, "replay.written", shard).clone());
  }
  loop->step();
  int seen = 0;
  for (int shard = 0; shard < 4; ++shard)
    for (int64_t k = 0; k < s.batch_size; ++k) {
      const int64_t row = drawn[shard].data_ptr<int32_t>()[k];
      if (row < 0) continue;
      bool again = false;  // a later draw of the same row wins
      for (int64_t j = k + 1; j < s.batch_size; ++j) again |= drawn[shard].data_ptr<int32_t>()[j] == row;
      const int64_t now = written[shard].data_ptr<int64_t>()[row / s.rows()];
      const bool overwritten = now % s.rows() == row % s.rows() || (now + 1) % s.rows() == row % s.rows();
      if (again || overwritten) continue;
      ++seen;
      EXPECT_EQ(field(*loop, "replay.priorities", shard).data_ptr<int64_t>()[row],
                priority_of(errors.data_ptr<float>()[k], s.alpha));
    }
  EXPECT_GT(seen, 16);
}

// One step recomputed here: the loss of the drawn rows from the stored ones, with the weights before the update.
TEST(Dqn, TheErrorsAreThoseOfDoubleQOverTheDrawnRows) {
  DqnSettings s = small();
  s.net.dropout = 0;
  const auto loop = loop_of(s);
  for (int step = 0; step < 20; ++step) loop->step();
  DuelingNet net(Corridor::kCells, 2, s.net), target(Corridor::kCells, 2, s.net);
  // Both nets' weights are flat vectors of one layout.
  const auto copy = [&](DuelingNet& to, std::span<float> flat) {
    at::NoGradGuard no_grad;
    auto parameters = to->named_parameters();
    for (const ParameterEntry& entry : loop->state().parameter_entries())
      parameters[entry.name].copy_(
          at::from_blob(flat.data() + entry.offset, {entry.count}, at::kFloat).view(parameters[entry.name].sizes()));
  };
  copy(net, loop->state().parameters());
  copy(target, loop->state().target_network(0));
  loop->step();
  const at::Tensor errors = replicated(*loop, "errors");
  const ReplayShape shape{s.environments, s.rows(), Corridor::kCells, s.n_step, s.gamma};
  for (int shard = 0; shard < 4; ++shard) {
    const at::Tensor drawn = field(*loop, "replay.drawn", shard);
    at::Tensor sums = field(*loop, "replay.priorities", shard);
    Replay replay(shape, field(*loop, "replay.seen", shard).data_ptr<float>(),
                  reinterpret_cast<ReplayRow*>(field(*loop, "replay.rows", shard).data_ptr<uint8_t>()),
                  field(*loop, "replay.written", shard).data_ptr<int64_t>(),
                  {sums.data_ptr<int64_t>(), static_cast<size_t>(sums.numel())});
    for (int64_t k = 0; k < s.batch_size; ++k) {
      const int64_t row = drawn.data_ptr<int32_t>()[k];
      if (row < 0) continue;
      at::Tensor before = at::empty({1, Corridor::kCells}), after = at::empty({1, Corridor::kCells});
      const Transition t = replay.take(row, before.data_ptr<float>(), after.data_ptr<float>());
      const int64_t best = net->forward(after).argmax(1).item<int64_t>();
      const double goal = t.reward + t.discount * target->forward(after)[0][best].item<double>();
      EXPECT_NEAR(errors.data_ptr<float>()[k], std::abs(net->forward(before)[0][t.action].item<double>() - goal), 1e-4);
    }
  }
}

TEST(Dqn, SettingsThatDoNotFitAreRefused) {
  DqnSettings tiny = small(), attention = small(), empty = small();
  tiny.capacity = 20;
  attention.net.attention = true;
  attention.net.tokens = 5;
  empty.net.hidden = {};
  for (const DqnSettings& s : {tiny, attention, empty}) EXPECT_THROW(s.check(), ConfigError);
}

TEST(Evaluate, RepeatsItselfAndSeesLuckThatTrainingNeverDraws) {
  const DqnSettings s = small();
  const auto loop = loop_of(s);
  const Dqn& dqn = dynamic_cast<const Dqn&>(loop->recipe());
  const Evaluation a = dqn.evaluate(64, 1), b = dqn.evaluate(64, 1), other = dqn.evaluate(64, 2);
  EXPECT_EQ(a.mean, b.mean);
  EXPECT_GT(a.error, 0);
  EXPECT_NE(a.mean, other.mean);
  EXPECT_NE(evaluate_random(dqn.environment(), 64, 1).mean, a.mean);
}

}  // namespace
}  // namespace tandem
