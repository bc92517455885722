// PPO: what it sees, that it learns, that its bits don't depend on the plan.
#include "rl/ppo/ppo.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>

#include "rl/ppo/ppo_test_loops.h"

namespace tandem {
namespace {

// ---- windows ----

// Tells its own steps: the observation of step k of episode m is m + k / 100. The table is 100, 101, ...
class Diary : public Environment {
 public:
  struct State {
    int32_t episode, step;
  };
  static constexpr int32_t kLength = 5;
  Diary() {
    for (int i = 0; i < 50; ++i) rows_.push_back(100.0f + static_cast<float>(i));
  }
  int64_t observation_size() const override { return 1; }
  int64_t actions() const override { return 2; }
  int64_t state_bytes() const override { return sizeof(State); }
  int64_t max_episode_steps() const override { return kLength; }
  ObservationTable table() const override { return {rows_.data(), 1, 50}; }
  void table_rows(const std::byte* states, int32_t* out, int64_t n) const override {
    for (int64_t i = 0; i < n; ++i) out[i] = 10 + at(states, i).step;
  }
  void observe_before(float* out) const override { *out = -1; }
  void reset(std::byte* states, int64_t n, const RandomKey&, const Outcome* only_ended) const override {
    for (int64_t i = 0; i < n; ++i)
      if (!only_ended || only_ended[i].end != End::kNone) {
        State& s = reinterpret_cast<State*>(states)[i];
        s = {only_ended ? s.episode + 1 : 0, 0};
      }
  }
  void observe(const std::byte* states, float* out, int64_t n) const override {
    for (int64_t i = 0; i < n; ++i) out[i] = number(at(states, i));
  }
  void step(std::byte* states, const int32_t*, Outcome* out, int64_t n, const RandomKey&) const override {
    for (int64_t i = 0; i < n; ++i) {
      State& s = reinterpret_cast<State*>(states)[i];
      ++s.step;
      out[i] = {.reward = 1, .end = s.step == kLength ? End::kTruncated : End::kNone};
    }
  }
  static float number(const State& s) { return static_cast<float>(s.episode) + static_cast<float>(s.step) / 100; }

 private:
  static const State& at(const std::byte* states, int64_t i) { return reinterpret_cast<const State*>(states)[i]; }
  std::vector<float> rows_;
};
TEST(PpoWindow, IsTheTrueHistoryOfItsEpisode) {
  PpoSettings s = small_ppo();
  s.net.kind = "clstm";
  s.net.width = 8;
  s.net.heads = 2;
  s.net.layers = 1;
  s.window = 4;
  const auto loop = ppo_loop(s, std::make_unique<Diary>());
  for (int64_t i = 0; i < s.updates_per_rollout() + 1; ++i) loop->step();  // into the second rollout
  const auto& ppo = dynamic_cast<const Ppo&>(loop->recipe());
  const RolloutShape& shape = ppo.shape();
  const at::Tensor own = field_of(*loop, "own"), row = field_of(*loop, "row"), age = field_of(*loop, "age"),
                   weight = field_of(*loop, "weight"), table = at::arange(100, 150, at::kFloat);
  const float before = -1;
  Rollout rollout{.own = own.data_ptr<float>(), .row = row.data_ptr<int32_t>(), .age = age.data_ptr<int32_t>()};
  at::Tensor seen = at::empty({shape.environments, 4, 2}), number = at::empty({shape.environments}, at::kLong);
  const WindowSource source{table.data_ptr<float>(), &before};
  for (int64_t t = 0; t < s.horizon; ++t) {
    PpoKernels::cpu().windows(rollout, shape, source, t, {}, RandomKey{.step = 1}, seen.data_ptr<float>(),
                              number.data_ptr<int64_t>(), nullptr);
    // The first rollout had 16 steps: episodes take 5 and an idle one; the idle step shows the last observation.
    const int64_t all = s.horizon + t, episode = all / 6, step = all % 6;
    EXPECT_EQ(weight[0][t].item<float>(), step == 5 ? 0 : 1);
    EXPECT_EQ(number[0].item<int64_t>(), shape.rows() + t);
    for (int64_t k = 0; k < 4; ++k) {
      const int64_t then = step - (3 - k);
      EXPECT_EQ(seen[0][k][0].item<float>(), static_cast<float>(110 + then)) << t << " " << k;
      EXPECT_EQ(seen[0][k][1].item<float>(),
                then < 0 ? -1 : Diary::number({static_cast<int32_t>(episode), static_cast<int32_t>(then)}));
    }
  }
}

// ---- the learner ----

TEST(Ppo, LearnsTheHallwayWithBothKindsOfActions) {
  for (const bool continuous : {false, true}) {
    PpoSettings s = small_ppo();
    s.optimizer.learning_rate = 1e-2;
    const auto loop = ppo_loop(s, std::make_unique<Hallway>(continuous));
    StepRecord record;
    while (loop->steps_done() < 40 * s.updates_per_rollout()) record = loop->step();
    EXPECT_GT(metric_of(record, "average_return"), 0.93) << continuous;
    EXPECT_LT(metric_of(record, "episode_length"), 5) << continuous;
  }
}

TEST(Ppo, BeginsEachRolloutWithRatioOne) {
  PpoSettings s = small_ppo();
  s.net.kind = "clstm";
  s.net.width = 8;
  s.net.heads = 2;
  s.net.layers = 2;
  s.net.dropout = 0.3;
  s.window = 3;
  s.optimizer.learning_rate = 1e-2;
  const auto loop = ppo_loop(s, std::make_unique<Hallway>(false));
  for (int64_t step = 0; step < 3 * s.updates_per_rollout(); ++step) {
    const StepRecord record = loop->step();
    if (step % s.updates_per_rollout() == 0) {
      EXPECT_LT(metric_of(record, "kl"), 1e-9) << "dropout draws the masks that were drawn when the steps were played";
      EXPECT_EQ(metric_of(record, "clipped"), 0);
    } else if (step % s.updates_per_rollout() > 4) {
      EXPECT_GT(metric_of(record, "kl"), 1e-9);
    }
  }
}

std::string digest_of_ppo(PpoSettings s, bool continuous, int steps, const std::vector<double>& workers) {
  const auto loop = ppo_loop(s, std::make_unique<Hallway>(continuous), workers);
  while (loop->steps_done() < steps) loop->step();
  return digest_of(*loop);
}

TEST(Ppo, HasOneDigestForEveryPlanAndPass) {
  using Change = std::function<void(PpoSettings&)>;
  for (const Change& change : std::vector<Change>{[](PpoSettings&) {}, [](PpoSettings& s) { s.accumulation = 2; },
                                                  [](PpoSettings& s) { s.precision = "bf16"; },
                                                  [](PpoSettings& s) {
                                                    s.net.kind = "clstm";
                                                    s.net.width = 8;
                                                    s.net.heads = 2;
                                                    s.net.layers = 2;
                                                    s.window = 3;
                                                  }})
    for (const bool continuous : {false, true}) {
      PpoSettings s = small_ppo();
      change(s);
      const int steps = static_cast<int>(2 * s.updates_per_rollout() + 3);
      const std::string one = digest_of_ppo(s, continuous, steps, {1});
      EXPECT_EQ(digest_of_ppo(s, continuous, steps, {1, 1}), one);
      EXPECT_EQ(digest_of_ppo(s, continuous, steps, {2, 1, 1}), one);
      s.shards_per_pass = 1;
      EXPECT_EQ(digest_of_ppo(s, continuous, steps, {1}), one);
      s.shards_per_pass = 3;
      EXPECT_EQ(digest_of_ppo(s, continuous, steps, {1}), one);
    }
}

// The hallway, stepped where the policy is: here by the host too, but in a phase that runs several shards in one pass.
class SteppedHallway : public Hallway {
 public:
  explicit SteppedHallway(bool continuous, float reward = 0) : Hallway(continuous), reward_(reward) {}
  std::unique_ptr<RolloutStepper> rollout_stepper() const override { return std::make_unique<Stepper>(*this); }

 private:
  struct Stepper : RolloutStepper {
    explicit Stepper(const SteppedHallway& of) : world(of) {}
    void queue(const RolloutEnvironments& shard, int64_t n, const RolloutClock& clock, const RandomSource& key,
               int64_t t, void*) const override {
      std::vector<Outcome> out(static_cast<size_t>(n));
      for (int64_t e = 0; e < n; ++e) {
        Outcome& one = out[static_cast<size_t>(e)];
        if (shard.idle[e] == 0) one = move(reinterpret_cast<State*>(shard.states)[e], shard.actions[e] > 0.5f);
        shard.rewards[e] = one.reward + world.reward_;
        shard.ends[e] = static_cast<int32_t>(one.end);
        shard.rows[e] = 0;
      }
      world.observe(shard.states, shard.observed, n);
      world.reset(shard.states, n, clock.at(key.present(), t), out.data());
    }
    const SteppedHallway& world;
  };
  float reward_;
};

TEST(Ppo, EnvironmentsThatAreSteppedBesideThePolicyGiveTheBitsOfTheHosts) {
  for (const bool continuous : {false, true})
    for (const int64_t together : {0, 1, 3})
      for (const std::vector<double>& workers : std::vector<std::vector<double>>{{1}, {2, 1, 1}}) {
        PpoSettings s = small_ppo();
        s.accumulation = 2;
        s.shards_per_pass = together;
        const auto by_host = ppo_loop(s, std::make_unique<Hallway>(continuous), workers),
                   beside = ppo_loop(s, std::make_unique<SteppedHallway>(continuous), workers);
        const std::string words = fmt::format("{} shards in a pass, {} workers", together, workers.size());
        for (int64_t step = 0; step < 2 * s.updates_per_rollout() + 3; ++step) {
          const StepRecord want = by_host->step(), got = beside->step();
          ASSERT_EQ(metric_of(got, "average_return"), metric_of(want, "average_return")) << words;
          ASSERT_EQ(metric_of(got, "episode_length"), metric_of(want, "episode_length")) << words;
        }
        EXPECT_EQ(digest_of(*beside), digest_of(*by_host)) << words;
        for (const char* field : {"environments", "returns", "ended", "rollout.own", "rollout.reward"})
          EXPECT_TRUE(at::equal(field_of(*beside, field, 0), field_of(*by_host, field, 0))) << field;
      }
}

// The hallway, whose third step brings what is no number.
class BrokenHallway : public Hallway {
 public:
  BrokenHallway() : Hallway(false) {}
  void step(std::byte* states, const int32_t* actions, Outcome* out, int64_t n, const RandomKey& key) const override {
    Hallway::step(states, actions, out, n, key);
    if (++steps_ == 3) out[0].reward = NAN;
  }

 private:
  mutable int steps_ = 0;
};

TEST(Ppo, ARewardThatIsNoNumberEndsTheRun) {
  const auto loop = ppo_loop(small_ppo(), std::make_unique<BrokenHallway>());
  EXPECT_THROW(loop->step(), Error);
  const auto beside = ppo_loop(small_ppo(), std::make_unique<SteppedHallway>(false, NAN));
  EXPECT_THROW(beside->step(), Error);
}

TEST(Ppo, RefusesARolloutThatDoesNotDivideIntoBatches) {
  PpoSettings s = small_ppo();
  s.batch_size = 48;
  EXPECT_THROW(s.check(), ConfigError);
}

}  // namespace
}  // namespace tandem
