// market/generated_market.h -- a market of chance: seeded, with or without something to find in it.
//
// Daily bars with stochastic volatility (Heston's, whose long-run level changes between calm, usual and nervous times),
// jumps, a fall of prices when volatility rises, and highs and lows from 16 pieces of each session. Implied volatility
// is what the model itself expects of the next month, times a premium. A pure function of its options: Philox and our
// own exp and log, so the same bits on every machine.
//
// edge = 0: prices are a martingale, so shares earn nothing but chance and no direction can be learned. Options are not
// fair all the same: they cost the premium, as in real markets, and Black-Scholes takes a rate (env.rate) by which
// these prices do not grow. So who sells calls, or spreads of them, earns more than the costs on average, and who buys
// calls pays that beside the costs. For puts the rate works the other way, and in calm times a change of the level of
// volatility is not expected: puts bought then earn more than their costs (option_fairness_test.cc measures these).
// fair: one volatility for all days of a symbol, which options are priced at, no jumps, no nights, no premium, no skew.
// At a rate of 0 the mid of every option is then its expected payoff, at every moment, so nothing earns more than
// chance and costs take from everybody.
// edge > 0: a hidden direction, -1 or +1, turns with probability 1/30 a day. A day's expected log return is edge *
// direction * that day's volatility (a day's, not a year's), and its volume is doubled where the direction is +1. At
// the close of day t the volume tells the direction of t, which holds on t + 1 with probability 29/30. What can be
// known of it is known by a simple rule: "buy calls after doubled volume, puts after plain volume".
#pragma once

#include <cstdint>
#include <vector>

#include "market/market_data.h"

namespace tandem {

struct GeneratedMarketOptions {
  int32_t symbols = 8;
  int32_t days = 1500;
  uint64_t seed = 1;
  double edge = 0;          // 0 to 1
  double premium = 1.05;    // implied over expected volatility; of a fair market 1
  double volatility = 0.2;  // usual level, a year's; calm is half of it, nervous twice
  bool fair = false;        // not with an edge
};

inline constexpr double kTurnProbability = 1.0 / 30;  // of the hidden direction, a day
inline constexpr double kPlainVolume = 1e6;           // doubled where the direction is +1; within 20 % either way

struct GeneratedMarket {
  MarketData data;                              // description says loudly that it is generated
  std::vector<std::vector<int8_t>> direction;   // [symbol][day], -1 or +1: of tests and of the known rule only
  std::vector<std::vector<double>> volatility;  // [symbol][day], the true one of that day, a year's
};

// Throws ConfigError if an option is out of its range.
GeneratedMarket generate_market(const GeneratedMarketOptions& options);

// What the known rule believes at the close of a day, from its volume alone: -1 or +1.
inline int direction_of_volume(double volume) { return volume > 1.5 * kPlainVolume ? 1 : -1; }

}  // namespace tandem
