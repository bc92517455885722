#include "market/share_baselines.h"

#include <fmt/format.h>

namespace tandem {
namespace {

constexpr int32_t kCoveredPercent = 2;  // above the close

// Cents of one share at an open, the cost in.
int64_t share_price(const MarketDay& day, double share_cost) { return up_to_cent(day.open * (1 + share_cost) * 100); }
int64_t contract_value(const MarketDay& day) { return to_nearest_cent(day.close * kCentsOfContract); }
// Whole cents that a sale of shares at the close brings.
int64_t sale_of(int64_t shares, const MarketDay& day, double share_cost) {
  return static_cast<int64_t>(static_cast<double>(shares) * (day.close * (1 - share_cost) * 100));
}

ShareResult begun(const MarketView& market, const MarketView::Range& range, const OptionsRules& rules,
                  const std::string& symbol) {
  ShareResult out;
  out.curve.name = symbol;
  out.curve.dates = {market.days[range.first].date};
  out.curve.cents = {rules.capital_cents};
  out.curve.held = {0};
  return out;
}

void add_day(EquityCurve& curve, const MarketDay& day, int64_t cents, bool held) {
  curve.dates.push_back(day.date);
  curve.cents.push_back(cents);
  curve.held.push_back(held ? 1 : 0);
}

// Lots of 100 shares with a call sold on each.
struct CoveredLots {
  int64_t cash = 0, lots = 0;
  OptionLeg legs[kOptionLegs];  // the first one, where a call is out
  int32_t expiry = -1;          // row; -1: no call is out
  ClosedTrade shares, call;
};

void buy_lots(CoveredLots& held, const MarketDay& today, double share_cost, const std::string& symbol) {
  const int64_t lot = share_price(today, share_cost) * kSharesOfContract;
  held.lots = held.cash / lot;
  held.cash -= held.lots * lot;
  held.shares = {.symbol = symbol, .opened = today.date, .bought_cents = held.lots * lot};
}

void sell_call(CoveredLots& held, const MarketDay& decided, const MarketDay& today, int32_t row,
               const OptionsRules& rules, const std::string& symbol) {
  held.legs[0] = leg_at(decided.close, kCoveredPercent, 0, -1);
  const OptionFill fill = fill_legs(held.legs, 1, chain_of(decided, rules), today.open, rules.expiry_days,
                                    slippage_of(held.lots, rules), rules);
  const int64_t received = (-fill.paid - rules.commission_cents) * held.lots;
  held.cash += received;
  held.expiry = row - 1 + rules.expiry_days;
  held.call = {.symbol = symbol, .opened = today.date, .sold_cents = received};
}

void settle_call(CoveredLots& held, const MarketDay& today, std::vector<ClosedTrade>& trades) {
  const int64_t owed = -payoff_of(held.legs, contract_value(today));
  held.call.closed = today.date;
  held.call.bought_cents = owed * held.lots;
  trades.push_back(held.call);
  held.expiry = -1;
  if (owed <= 0) return;
  held.cash += held.legs[0].strike * held.lots;  // assigned: the shares go at the strike
  held.shares.closed = today.date;
  held.shares.sold_cents = contract_value(today) * held.lots;
  trades.push_back(held.shares);
  held.lots = 0;
}

int64_t value_of(const CoveredLots& held, const MarketDay& today, int32_t row, const OptionsRules& rules) {
  int64_t value = held.cash + held.lots * contract_value(today);
  if (held.expiry < 0) return value;
  return value -
         held.lots * mark_of(quote_of(held.legs[0], chain_of(today, rules), today.close, held.expiry - row, rules).mid);
}

// What the end brings: the call is bought back and the shares are sold at the close, costs in.
int64_t liquidation_of(const CoveredLots& held, const MarketDay& last, int32_t row, const OptionsRules& rules,
                       double share_cost) {
  int64_t value = held.cash + sale_of(held.lots * kSharesOfContract, last, share_cost);
  if (held.expiry < 0) return value;
  const OptionFill fill = fill_legs(held.legs, -1, chain_of(last, rules), last.close, held.expiry - row,
                                    slippage_of(held.lots, rules), rules);
  return value - (fill.paid + rules.commission_cents) * held.lots;
}

}  // namespace

ShareResult hold_shares(const MarketView& market, const MarketView::Range& range, const OptionsRules& rules,
                        double share_cost, const std::string& symbol) {
  ShareResult out = begun(market, range, rules, symbol);
  const MarketDay& first = market.days[range.first + 1];
  const int64_t price = share_price(first, share_cost), shares = rules.capital_cents / price;
  const int64_t cash = rules.capital_cents - shares * price;
  if (shares == 0)
    out.note = fmt::format("{}: a share costs more than the capital, it stays in cash", symbol);
  else
    out.trades.push_back({.symbol = symbol, .opened = first.date, .bought_cents = shares * price});
  for (int32_t row = range.first + 1; row <= range.last; ++row) {
    const MarketDay& day = market.days[row];
    const int64_t worth = row == range.last ? sale_of(shares, day, share_cost)
                                            : to_nearest_cent(static_cast<double>(shares) * day.close * 100);
    add_day(out.curve, day, cash + worth, shares > 0);
  }
  return out;
}

ShareResult write_covered_calls(const MarketView& market, const MarketView::Range& range, const OptionsRules& rules,
                                double share_cost, const std::string& symbol) {
  ShareResult out = begun(market, range, rules, symbol);
  CoveredLots held{.cash = rules.capital_cents};
  for (int32_t row = range.first + 1; row <= range.last; ++row) {
    const MarketDay &decided = market.days[row - 1], &today = market.days[row];
    if (held.lots == 0) buy_lots(held, today, share_cost, symbol);
    if (held.lots == 0 && out.note.empty())
      out.note = fmt::format("{}: 100 shares cost more than its capital on {}, it stays in cash", symbol, today.date);
    if (held.lots > 0 && held.expiry < 0) sell_call(held, decided, today, row, rules, symbol);
    if (held.expiry == row) settle_call(held, today, out.trades);
    add_day(out.curve, today,
            row == range.last ? liquidation_of(held, today, row, rules, share_cost) : value_of(held, today, row, rules),
            held.lots > 0);
  }
  if (held.lots > 0) out.trades.push_back(held.shares);
  if (held.expiry >= 0) out.trades.push_back(held.call);
  return out;
}

}  // namespace tandem
