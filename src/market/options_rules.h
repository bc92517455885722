// market/options_rules.h -- the rules of the options environment: sizes, costs and the actions.
//
// Actions, all decided on the close of a day:
//   0       hold
//   1-10    buy calls, strike = close * (1 + .01 * (a - 1))          11-20  buy puts, close * (1 - .01 * (a - 11))
//   21-25   sell position 1..5 whole                                26-30  sell half of it, at least one contract
// and with `multi_leg`:
//   31-45   buy calls of the second expiry, 0 to 14 % above         46-60  buy puts of it, 0 to 14 % below
//   61-65   bull call spread: buy the call k % above, sell the one k + 5 % above; k = 0..4
//   66-70   bear put spread: buy the put k % below, sell the one k + 5 % below; k = 0..4
//   71-75   bull put spread: sell the put k % below, buy the one k + 5 % below; k = 1..5
//   76-80   bear call spread: sell the call k % above, buy the one k + 5 % above; k = 1..5
//   81-82   straddle of the first and of the second expiry
//   83-85   strangle: buy the call and the put 2, 4, 6 % away
//   86-88   iron condor: sell the call and the put 2, 4, 6 % away, buy those 4 % farther
//   89-90   butterfly of calls: buy 3 or 6 % below and above, sell two at the close
// A short leg always has a long one behind it, so that every loss is limited; cash for the largest loss is reserved.
#pragma once

#include <cstdint>

#include "kernels/portable.h"

namespace tandem {

inline constexpr int kOptionPositions = 5;  // the actions know so many
inline constexpr int kOptionLegs = 4;       // of a position, at most
inline constexpr int kSharesOfContract = 100;
inline constexpr int kTradingDaysOfYear = 252;
inline constexpr int32_t kSingleLegActions = 31, kMultiLegActions = 91;

// Settings. Plain data: a kernel takes it by value.
struct OptionsRules {
  int64_t capital_cents = 10'000'000;
  double order_share = 0.05;  // of the portfolio's value that an order puts at risk
  double spread = 0.02;       // bid to ask at the money, as a share of the mid; a day that has its own overrides it
  double spread_far = 0.03;   // added in proportion to |ln(strike / spot)|, ...
  double far = 0.10;          // ... whole from here on
  double slippage = 0.001;    // share of the price, times 1 + contracts / slippage_contracts
  double slippage_contracts = 50;
  double rate = 0.03;                    // for pricing; cash earns nothing
  double ruin = 0.10;                    // an episode is terminated below this share of the capital
  int32_t positions = kOptionPositions;  // held at most
  int32_t max_contracts = 100;           // of an order
  int32_t expiry_days = 21;              // trading days after the decision
  int32_t second_expiry_days = 42;       // multi_leg
  int32_t episode = 195;                 // days
  int32_t commission_cents = 65;         // per contract and leg, each way; settlement at expiry is free
  int32_t multi_leg = 0;                 // 1: 91 actions

  TANDEM_HD int32_t actions() const { return multi_leg ? kMultiLegActions : kSingleLegActions; }
};

// Throws ConfigError if a value is out of its range.
void check_options_rules(const OptionsRules& rules);

enum class OptionStrategy : int32_t {
  kNone,
  kCall,
  kPut,
  kBullCallSpread,
  kBearPutSpread,
  kBullPutSpread,
  kBearCallSpread,
  kStraddle,
  kStrangle,
  kIronCondor,
  kButterfly,
};

struct OptionLeg {
  int64_t strike = 0;  // of a contract: cents for its 100 shares
  int32_t put = 0;     // 0: a call
  int32_t side = 0;    // 1 bought, -1 sold, 0 no leg
};

// What an action would open.
struct OptionOrder {
  OptionLeg legs[kOptionLegs];
  OptionStrategy strategy = OptionStrategy::kNone;
  int32_t days = 0;  // to expiry, after the decision
};

}  // namespace tandem
