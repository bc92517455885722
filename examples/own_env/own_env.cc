// own_env.cc -- a decision problem of your own in C++, learned by tandem's DQN or by its PPO with everything tandem
// has: any number of workers with the same bits, checkpoints, exact resume.
//
//   own_env train --steps 500        own_env train --devices cpu:2 --json        own_env judge --steps 3000
//   own_env train shop-ppo           the same environment learned by PPO         own_env judge shop-ppo
//
// The problem: a shop orders every evening what is sold on the next day. Stock costs, an order costs, a customer who
// finds nothing costs more; weekends sell more than weekdays. It is small enough for dynamic programming, so `judge`
// can say how far what was learned is from the best there is.
#include <tandem/dqn.h>
#include <tandem/engine/determinism.h>
#include <tandem/engine/train_loop.h>
#include <tandem/ppo.h>
#include <tandem/program.h>

#include <array>
#include <cstdio>
#include <cstring>

namespace {

constexpr int kMostStock = 12, kDays = 7, kOrders = 6, kMostDemand = 5, kEpisode = 28;

// Demand of a day: the chance of each number of customers.
std::array<double, kMostDemand + 1> demand(int day) {
  if (day >= 5) return {0.02, 0.08, 0.15, 0.25, 0.30, 0.20};  // weekend
  return {0.20, 0.35, 0.25, 0.12, 0.05, 0.03};
}

// What a day brings, given stock in the morning, the order of the evening before and the number of customers.
struct Day {
  int stock;
  double reward;
};
Day live(int stock, int order, int customers) {
  const int there = std::min(kMostStock, stock + order), sold = std::min(there, customers);
  return {there - sold,
          1.0 * sold - 0.6 * (customers - sold) - 0.08 * (there - sold) - (order > 0 ? 0.4 + 0.1 * order : 0.0)};
}

// Your settings: each key is a flag (--set first_stock=3), a line of a TOML file and a line of the run's record. The
// learner's own are all there too, and a learner is its settings and its name, here and below.
template <class LearnerSettings>
struct ShopOf : LearnerSettings {
  int64_t first_stock = 12;
  void describe(tandem::Describer& d) override {
    LearnerSettings::describe(d);
    d.key("first_stock", first_stock, tandem::Range::between(0, kMostStock), "most that is there at the beginning");
  }
};

struct ShopSettings : ShopOf<tandem::DqnSettings> {
  ShopSettings() {
    shards = 4;
    environments = 4;
    batch_size = 64;
    steps = 3000;
    capacity = 40'000;
    learning_starts = 1000;
    gamma = 0.9;
    target_rate = 0.02;
    epsilon_steps = 500;
    epsilon_end = 0.05;
    beta_steps = 1500;
    net = {.hidden = {64, 64}, .head = 32, .dropout = 0};
    optimizer.learning_rate = 2e-3;
    optimizer.weight_decay = 0;
    schedule.kind = "cosine";
  }
};

struct ShopPpoSettings : ShopOf<tandem::PpoSettings> {
  ShopPpoSettings() {
    shards = 4;
    environments = 8;
    horizon = 32;
    batch_size = 256;
    steps = 2000;
    gamma = 0.9;
    gae_lambda = 0.9;
    net.hidden = {64, 64};
    optimizer.learning_rate = 2e-3;
    schedule.kind = "cosine";
  }
};

// Your environment. The object holds nothing that changes: states lie in memory that the engine gives, saves and moves,
// and every random number comes from the key, by the environment's own index.
class ShopEnvironment : public tandem::Environment {
 public:
  struct State {
    int32_t stock, day, time;
  };
  explicit ShopEnvironment(int64_t first_stock) : first_stock_(static_cast<uint32_t>(first_stock)) {}
  int64_t observation_size() const override { return kMostStock + 1 + kDays; }
  int64_t actions() const override { return kOrders; }
  int64_t state_bytes() const override { return sizeof(State); }
  int64_t max_episode_steps() const override { return kEpisode; }

  void reset(std::byte* states, int64_t n, const tandem::RandomKey& key,
             const tandem::Outcome* only_ended) const override {
    for (int64_t i = 0; i < n; ++i)
      if (!only_ended || only_ended[i].end != tandem::End::kNone)
        reinterpret_cast<State*>(states)[i] = {
            static_cast<int32_t>(tandem::random_below(key, 2 * static_cast<uint64_t>(i), first_stock_ + 1)),
            static_cast<int32_t>(tandem::random_below(key, 2 * static_cast<uint64_t>(i) + 1, kDays)), 0};
  }
  void observe(const std::byte* states, float* out, int64_t n) const override {
    for (int64_t i = 0; i < n; ++i) show(reinterpret_cast<const State*>(states)[i], out + i * observation_size());
  }
  static void show(const State& state, float* out) {
    for (int s = 0; s <= kMostStock; ++s) out[s] = s == state.stock ? 1.0f : 0.0f;
    for (int d = 0; d < kDays; ++d) out[kMostStock + 1 + d] = d == state.day ? 1.0f : 0.0f;
  }
  void step(std::byte* states, const int32_t* actions, tandem::Outcome* out, int64_t n,
            const tandem::RandomKey& key) const override {
    for (int64_t i = 0; i < n; ++i) {
      State& state = reinterpret_cast<State*>(states)[i];
      double left = tandem::random_uniform(key, static_cast<uint64_t>(i));
      int customers = 0;
      for (const double chance : demand(state.day)) {
        if (left < chance || customers == kMostDemand) break;
        left -= chance;
        ++customers;
      }
      const Day day = live(state.stock, actions[i], customers);
      state = {day.stock, (state.day + 1) % kDays, state.time + 1};
      // The shop goes on after the four weeks that we look at: the episode is cut, not over.
      out[i] = {.reward = static_cast<float>(day.reward),
                .end = state.time == kEpisode ? tandem::End::kTruncated : tandem::End::kNone};
    }
  }

 private:
  uint32_t first_stock_;
};

struct Shop : tandem::Dqn {
  explicit Shop(const ShopSettings& s) : Dqn(s, std::make_unique<ShopEnvironment>(s.first_stock)) {}
};
struct ShopPpo : tandem::Ppo {
  explicit ShopPpo(const ShopPpoSettings& s) : Ppo(s, std::make_unique<ShopEnvironment>(s.first_stock)) {}
};

// ---- how good is it? By dynamic programming over all 13 x 7 states, without a random number ----

using Table = std::array<std::array<double, kDays>, kMostStock + 1>;

double worth(const Table& value, int stock, int day, int order, double gamma) {
  double sum = 0;
  const auto chances = demand(day);
  for (int customers = 0; customers <= kMostDemand; ++customers) {
    const Day next = live(stock, order, customers);
    sum += chances[customers] * (next.reward + gamma * value[next.stock][(day + 1) % kDays]);
  }
  return sum;
}

// The mean over all states of what `choose(stock, day, value)` is worth in the long run.
template <class Choose>
double long_run(double gamma, const Choose& choose) {
  Table value{};
  for (int sweep = 0; sweep < 400; ++sweep) {
    const Table before = value;
    for (int s = 0; s <= kMostStock; ++s)
      for (int d = 0; d < kDays; ++d) value[s][d] = choose(s, d, before);
  }
  double mean = 0;
  for (const auto& row : value)
    for (const double v : row) mean += v / (kDays * (kMostStock + 1));
  return mean;
}

// steps: 0: as many as the settings say.
template <class Recipe, class Settings>
int judge(int64_t steps) {
  Settings settings;
  if (steps > 0) settings.steps = steps;
  settings.schedule.total_steps = settings.steps;
  settings.check();
  tandem::set_determinism();
  tandem::TrainLoop loop(settings, std::make_unique<Recipe>(settings),
                         tandem::ShardPlan::balance(static_cast<int>(settings.shards), std::vector{1.0}));
  const auto& shop = dynamic_cast<const Recipe&>(loop.recipe());
  while (loop.steps_done() < settings.steps) loop.step();

  std::array<std::array<int, kDays>, kMostStock + 1> orders{};
  std::vector<float> seen(static_cast<size_t>(shop.environment().observation_size()));
  for (int s = 0; s <= kMostStock; ++s)
    for (int d = 0; d < kDays; ++d) {
      ShopEnvironment::show({s, d, 0}, seen.data());
      orders[s][d] = shop.best_actions(seen).front();
    }
  const double gamma = settings.gamma;
  const double best = long_run(gamma, [&](int s, int d, const Table& v) {
    double most = worth(v, s, d, 0, gamma);
    for (int order = 1; order < kOrders; ++order) most = std::max(most, worth(v, s, d, order, gamma));
    return most;
  });
  const double random = long_run(gamma, [&](int s, int d, const Table& v) {
    double mean = 0;
    for (int order = 0; order < kOrders; ++order) mean += worth(v, s, d, order, gamma) / kOrders;
    return mean;
  });
  const double learned =
      long_run(gamma, [&](int s, int d, const Table& v) { return worth(v, s, d, orders[s][d], gamma); });
  std::printf("after %lld steps: worth %.3f; random %.3f, the best there is %.3f; score %.3f\n",
              static_cast<long long>(settings.steps), learned, random, best, (learned - random) / (best - random));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "judge") == 0) {
    const bool ppo = argc > 2 && std::strcmp(argv[2], "shop-ppo") == 0;
    const int64_t steps = argc > 3 && std::strcmp(argv[argc - 2], "--steps") == 0 ? std::atoll(argv[argc - 1]) : 0;
    return ppo ? judge<ShopPpo, ShopPpoSettings>(steps) : judge<Shop, ShopSettings>(steps);
  }
  return tandem::program_main(argc, argv, "own_env",
                              {tandem::dqn_entry<Shop, ShopSettings>("shop", "orders of a small shop"),
                               tandem::ppo_entry<ShopPpo, ShopPpoSettings>("shop-ppo", "the same, learned by PPO")});
}
