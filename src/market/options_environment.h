// market/options_environment.h -- options on the days of a market as a learner and an evaluation see them.
//
// What an agent sees of a step is the day's row of table(), which all environments share, and its own portfolio
// (options_observation.h). Rules and timing: options_rules.h, options_step.h.
#pragma once

#include <string>
#include <vector>

#include "market/options_observation.h"
#include "rl/environment.h"  // lint: allow(order) the interface alone: a header without a library

namespace tandem {

class OptionsEnvironment : public Environment {
 public:
  // The market's memory must outlive this. Throws ConfigError if rules or ranges are not usable: each range needs two
  // days of one symbol, all prices and volatilities above 0, and kWindow - 1 days of that symbol before it.
  OptionsEnvironment(const MarketView& market, const OptionsRules& rules);

  int64_t observation_size() const override { return kOwnFeatures; }
  int64_t actions() const override { return rules_.actions(); }
  // What is sold must be held, what is bought needs a free slot.
  std::vector<ActionRule> action_rules() const override;
  int64_t state_bytes() const override { return sizeof(OptionsState); }
  int64_t max_episode_steps() const override { return rules_.episode; }
  std::vector<std::string> terms() const override { return {"costs", "turnover"}; }  // percent of the capital

  void reset(std::byte* states, int64_t n, const RandomKey& key, const Outcome* only_ended) const override;
  void observe(const std::byte* states, float* out, int64_t n) const override;
  // An environment whose episode has ended stays as it is: reward 0, the same end. Draws no random numbers. Throws
  // std::out_of_range if an action is not below actions(); nothing has changed then.
  void step(std::byte* states, const int32_t* actions, Outcome* out, int64_t n, const RandomKey& key) const override;
  ObservationTable table() const override { return {market_.features, kMarketFeatures, market_.rows}; }
  ObservationTable forecast_targets() const override {
    return {market_.forecasts, market_.forecasts ? kForecasts : 0, market_.rows};
  }
  void table_rows(const std::byte* states, int32_t* out, int64_t n) const override;
  void observe_before(float* out) const override { observe_flat(out); }

  const MarketView& market() const { return market_; }
  const OptionsRules& rules() const { return rules_; }

  // ---- for an evaluation: one environment, begun at a chosen day, with its trades ----

  // Begins at row `day` of range `range`, for at most `length` days; it is cut at the range's last day all the same.
  // Throws std::out_of_range if the range has no such day with another one behind it.
  OptionsState begin(int32_t range, int32_t day, int32_t length) const;
  // From the range's first day to its last.
  OptionsState begin(int32_t range) const;
  // As step() for one; fills and settlements are appended to `trades`, where there is one.
  Outcome step_one(OptionsState& state, int32_t action, std::vector<OptionTrade>* trades = nullptr) const;
  static int64_t equity_cents(const OptionsState& state) { return state.value; }
  // What the portfolio would bring at the close of its day: everything sold at the bid, with slippage and commission.
  int64_t liquidation_cents(const OptionsState& state) const;
  static const OptionsState& state_at(const std::byte* states, int64_t i) {
    return reinterpret_cast<const OptionsState*>(states)[i];
  }

 private:
  void check_market() const;
  void check_action(int32_t action) const;

  MarketView market_;
  OptionsRules rules_;
};

// "call", "iron_condor", ...
const char* name_of(OptionStrategy strategy);
// "+call 102.50 -call 107.50"
std::string legs_text(const OptionLeg* legs);

// A list of trades as CSV: trade_header() and a line of each. Prices are of a share, in the currency's units.
std::string trade_header();
std::string trade_line(const OptionTrade& trade, const std::string& symbol);

}  // namespace tandem
