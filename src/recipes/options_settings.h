// recipes/options_settings.h -- settings of `options`: an agent that trades options on daily bars, a recurrent policy
// with attention (CLSTM) trained by PPO. Rules and costs of the environment: market/options_rules.h.
//
// A run trains on one fold of a walk-forward plan (market/folds.h). With walk_forward or several seeds it is a set of
// such runs (apps/options/options_set.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "market/folds.h"
#include "market/options_rules.h"
#include "rl/ppo/ppo_settings.h"

namespace tandem {

// Prices that are drawn, where no data is given (market/generated_market.h).
struct GeneratedMarketSettings {
  int64_t symbols = 8;
  int64_t days = 1500;  // of each symbol
  int64_t seed = 1;
  double edge = 0;    // of a day's volatility, what its expected return is; 0: no direction can be learned
  bool fair = false;  // options cost what they pay on average
};

struct OptionsSettings : PpoSettings {
  static constexpr int32_t kWarmUpDays = 60 + kWindow - 1;  // of a symbol, before its first decision (features.h)

  std::string data;         // folder of bars; empty: the generated market
  std::string data_digest;  // of what was read, set when the run begins
  int64_t data_last = 0;    // its last date, set with it; days that arrive later are no part of the run
  std::string symbols;      // "AAPL,MSFT"; empty: all of the folder
  bool accept_jumps = false;
  std::string python;                   // for Parquet
  double premium = 1.10, skew = -0.10;  // of volatilities that are estimated, where there are no quotes of options
  GeneratedMarketSettings market;

  double capital = 100'000;
  double order_share = 0.05;
  double commission = 0.65;
  double spread = 0.02, spread_far = 0.03;
  double slippage = 0.001;
  double rate = 0.03;
  int64_t positions = kOptionPositions;
  int64_t max_contracts = 100;
  int64_t expiry_days = 21, second_expiry_days = 42;
  int64_t episode_days = 195;
  bool multi_leg = false;

  int64_t folds = 4, fold = 4;
  double test_share = 0.4, validation_share = 0.15;
  int64_t embargo_days = 5;
  int64_t walk_forward = 0;  // above 0: a set of runs, one for each of so many folds
  int64_t seeds = 1;         // above 1: a set of runs, so many of each fold

  OptionsSettings() {
    environments = 16;
    horizon = 64;
    batch_size = 512;  // 128 samples accumulated four times, as the guide has them
    episodes = 5000;
    window = kWindow;
    net.kind = "clstm";
  }

  // Several runs, not one.
  bool is_set() const { return walk_forward > 0 || seeds > 1; }
  // Updates in which `episodes` are played, each counted with its whole length.
  int64_t updates_of_episodes() const {
    const int64_t played = episodes * episode_days, each = rollout_steps();
    return (played + each - 1) / each * updates_per_rollout();
  }

  OptionsRules rules() const {
    OptionsRules rules;
    rules.capital_cents = std::llround(capital * 100);
    rules.order_share = order_share;
    rules.spread = spread;
    rules.spread_far = spread_far;
    rules.slippage = slippage;
    rules.rate = rate;
    rules.positions = static_cast<int32_t>(positions);
    rules.max_contracts = static_cast<int32_t>(max_contracts);
    rules.expiry_days = static_cast<int32_t>(expiry_days);
    rules.second_expiry_days = static_cast<int32_t>(second_expiry_days);
    rules.episode = static_cast<int32_t>(episode_days);
    rules.commission_cents = static_cast<int32_t>(std::llround(commission * 100));
    rules.multi_leg = multi_leg ? 1 : 0;
    return rules;
  }

  // The longest contract and the window lie in the gap between what a fold learns from and what it is judged by.
  FoldPlan fold_plan() const {
    FoldPlan plan;
    plan.folds = static_cast<int32_t>(folds);
    plan.test_share = test_share;
    plan.validation_share = validation_share;
    plan.purge_days =
        static_cast<int32_t>(kWindow + (multi_leg ? std::max(expiry_days, second_expiry_days) : expiry_days));
    plan.embargo_days = static_cast<int32_t>(embargo_days);
    plan.warm_up_days = kWarmUpDays;
    return plan;
  }

  void describe(Describer& d) override {
    PpoSettings::describe(d);
    d.key("data", data, "folder of daily bars, a file for each symbol; empty: the generated market", Role::kRunning);
    d.key("data_digest", data_digest, "SHA-256 of what was read there; set when the run begins");
    d.key("data_last", data_last, Range::between(0, 99991231),
          "its last date; set when the run begins, days after it are left out");
    d.key("symbols", symbols, "those to use, separated by commas; empty: all of the folder");
    d.key("accept_jumps", accept_jumps, "what looks like a split that was not adjusted is taken as a move of the price",
          Role::kRunning);
    d.key("python", python, "Python with pyarrow, for Parquet; empty: that of VIRTUAL_ENV, else of .venv, else python3",
          Role::kRunning);
    d.key("features.premium", premium, Range::between(0.1, 10),
          "without quotes of options: implied volatility over the one estimated from returns");
    d.key("features.skew", skew, Range::between(-2, 2), "without quotes: its slope in ln(strike / spot) / sqrt(years)");
    d.key("market.symbols", market.symbols, Range::between(1, 1000), "generated market: symbols");
    d.key("market.days", market.days, Range::between(kWarmUpDays + 22, 50'000),
          "generated market: days of each symbol");
    d.key("market.seed", market.seed, Range::at_least(0), "generated market: its seed");
    d.key("market.edge", market.edge, Range::between(0, 1),
          "generated market: expected return of a day over its volatility, in a hidden direction; 0: none");
    d.key("market.fair", market.fair,
          "generated market: options cost what they pay on average, at one volatility a symbol; needs env.rate = 0");
    describe_rules(d);
    d.key("folds", folds, Range::between(1, 100), "test periods that the calendar's end is cut into, in order");
    d.key("fold", fold, Range::between(1, 100), "the one that this run is judged by; it learns from what lies before");
    d.key("test_share", test_share, Range{.min = 0, .max = 1, .above_min = true, .below_max = true},
          "share of the calendar for all test periods together");
    d.key("validation_share", validation_share, Range{.min = 0, .max = 1, .above_min = true, .below_max = true},
          "share of the days before a test period, the newest, that the best model is chosen by");
    d.key("embargo_days", embargo_days, Range::between(0, 1000),
          "days left out between two parts, beside a window and the days to expiry");
    d.key("walk_forward", walk_forward, Range::between(0, 100), "train each of so many folds; 0: one run",
          Role::kRunning);
    d.key("seeds", seeds, Range::between(1, 100), "runs of each fold: seed, seed + 1, ...", Role::kRunning);
  }

  void describe_rules(Describer& d) {
    d.key("env.capital", capital, Range::between(1, 1e9), "cash at the start of an episode");
    d.key("env.order_share", order_share, Range{.min = 0, .max = 1, .above_min = true},
          "share of the portfolio's value that an order puts at risk");
    d.key("env.positions", positions, Range::between(1, kOptionPositions), "positions held at most");
    d.key("env.max_contracts", max_contracts, Range::between(1, 1'000'000), "contracts of an order at most");
    d.key("env.expiry_days", expiry_days, Range::between(1, 2520), "trading days to expiry, from the decision");
    d.key("env.second_expiry_days", second_expiry_days, Range::between(1, 2520),
          "the same, of multi_leg's second expiry");
    d.key("env.episode_days", episode_days, Range::between(1, 1'000'000), "days of an episode");
    d.key("env.commission", commission, Range::between(0, 100'000), "per contract and leg, each way");
    d.key("env.spread", spread, Range::between(0, 1), "bid-ask spread at the money, as a share of the mid price");
    d.key("env.spread_far", spread_far, Range::between(0, 1), "added to it 10 % away from the money, less in between");
    d.key("env.slippage", slippage, Range::between(0, 0.5), "share of the price, times 1 + contracts / 50");
    d.key("env.rate", rate, Range::between(-1, 1), "yearly interest rate for pricing; cash earns nothing");
    d.key("env.multi_leg", multi_leg, "91 actions: a second expiry, spreads, straddles, iron condors, butterflies");
  }

  void check() const override {
    PpoSettings::check();
    check_options_rules(rules());
    if (market.fair && rate != 0)
      throw ConfigError(fmt::format("market.fair with env.rate = {}", rate),
                        "these prices grow by nothing, so options priced at a rate are not fair: sellers of calls earn",
                        "add --set env.rate=0");
    if (market.fair && market.edge > 0)
      throw ConfigError(fmt::format("market.fair with market.edge = {}", market.edge),
                        "whoever knows the direction earns", "set one of them");
    if (fold > folds)
      throw ConfigError(fmt::format("fold = {} of {} folds", fold, folds), "folds are counted from 1, the oldest first",
                        fmt::format("set fold to 1 to {}, or folds to {} or more", folds, fold));
    if (window > kWindow)
      throw ConfigError(fmt::format("net.window = {}", window),
                        fmt::format("an observation has the features of {} days", kWindow),
                        fmt::format("set net.window to {} or less", kWindow));
    if (test_share + validation_share > 0.9)
      throw ConfigError(fmt::format("test_share {} and validation_share {} leave too little to learn from", test_share,
                                    validation_share),
                        "the first fold learns from what lies before both", "make one of them smaller");
  }

  // What `--quick` sets: about two minutes on two cores, on the generated market with something to learn.
  static std::vector<std::pair<std::string, std::string>> quick() {
    return {{"shards", "2"},           {"environments", "16"}, {"ppo.horizon", "32"},   {"batch_size", "128"},
            {"ppo.epochs", "4"},       {"net.width", "64"},    {"net.layers", "1"},     {"net.heads", "4"},
            {"net.head_hidden", "64"}, {"market.edge", "0.3"}, {"market.symbols", "4"}, {"market.days", "1000"},
            {"episodes", "400"}};
  }
};

}  // namespace tandem
