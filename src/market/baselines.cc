#include "market/baselines.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/errors.h"
#include "kernels/philox.h"
#include "market/share_baselines.h"

namespace tandem {
namespace {

using Json = nlohmann::json;
constexpr uint32_t kRandomPlayerSite = 1;  // the seed belongs to the random players alone
constexpr int32_t kHold = 0, kBuyCall = 1, kBuyPut = 11, kSellFirst = 21;

std::string symbol_of(const MarketView& market, const std::vector<std::string>& names, int32_t range) {
  const auto number = static_cast<size_t>(market.days[market.ranges[range].first].symbol);
  return number < names.size() ? names[number] : fmt::format("symbol {}", number);
}

int32_t first_row_of_symbol(const MarketView& market, int32_t row) {
  while (row > 0 && market.days[row - 1].symbol == market.days[row].symbol) --row;
  return row;
}

// Adds up what each range gave.
template <class PlayRange>
Baseline over_ranges(const MarketView& market, std::string name, std::string what, const PlayRange& play) {
  Baseline out{.name = std::move(name), .what = std::move(what)};
  std::vector<EquityCurve> curves;
  for (int32_t range = 0; range < market.range_count; ++range) {
    ShareResult one = play(range);
    curves.push_back(std::move(one.curve));
    out.trades.insert(out.trades.end(), one.trades.begin(), one.trades.end());
    if (!one.note.empty()) out.notes.push_back(std::move(one.note));
  }
  out.curve = sum_of_curves(curves, out.name);
  return out;
}

using PolicyOfRange = std::function<OptionsPolicy(int32_t range)>;

Baseline by_policy(const OptionsEnvironment& environment, const std::vector<std::string>& names, std::string name,
                   std::string what, const PolicyOfRange& policy) {
  return over_ranges(environment.market(), std::move(name), std::move(what), [&](int32_t range) {
    const SymbolPlay play =
        play_range(environment, range, symbol_of(environment.market(), names, range), policy(range));
    return ShareResult{equity_curve(play), closed_trades(play), ""};
  });
}

bool holds_position(const OptionsState& state) { return state.positions[0].contracts > 0; }
bool holds_put(const OptionsState& state) { return state.positions[0].legs[0].put != 0; }

OptionsPolicy rsi_policy(const MarketView& market, int32_t range) {
  const auto [begin, last] = market.ranges[range];
  const int32_t first = first_row_of_symbol(market, begin);
  return [first, rsi = rsi_of(market, first, last)](const OptionsState& state) {
    const double now = rsi[static_cast<size_t>(state.day - first)];
    if (holds_position(state)) return (holds_put(state) ? now <= 50 : now >= 50) ? kSellFirst : kHold;
    return now < 30 ? kBuyCall : now > 70 ? kBuyPut : kHold;
  };
}

OptionsPolicy macd_policy(const MarketView& market, int32_t range) {
  const auto [begin, last] = market.ranges[range];
  const int32_t first = first_row_of_symbol(market, begin);
  return [first, macd = macd_of(market, first, last), wanted = kHold](const OptionsState& state) mutable {
    const auto at = static_cast<size_t>(state.day - first);
    const double now = macd[at], before = at > 0 ? macd[at - 1] : 0;
    if (now > 0 && before <= 0) wanted = kBuyCall;
    if (now < 0 && before >= 0) wanted = kBuyPut;
    if (wanted == kHold) return kHold;
    const int32_t order = wanted;
    if (holds_position(state)) {  // the other side is sold today, the new one is bought tomorrow
      if (holds_put(state) != (order == kBuyPut)) return kSellFirst;
      wanted = kHold;
      return kHold;
    }
    wanted = kHold;
    return order;
  };
}

double return_of(const EquityCurve& curve) {
  return static_cast<double>(curve.cents.back()) / static_cast<double>(curve.cents.front()) - 1;
}

// The player with the median return, and the returns of all.
Baseline random_baseline(const OptionsEnvironment& environment, const std::vector<std::string>& names,
                         const BaselinePlan& plan, std::vector<double>& returns) {
  const auto play = [&](int32_t player) {
    return by_policy(environment, names, "random", "any possible action with the same probability", [&](int32_t range) {
      const RandomKey key{plan.seed, static_cast<uint64_t>(player), static_cast<uint32_t>(range) & 0xFFFFu,
                          kRandomPlayerSite};
      return [&environment, key, rules = environment.action_rules()](const OptionsState& state) {
        std::array<float, kOwnFeatures> seen;
        environment.observe(reinterpret_cast<const std::byte*>(&state), seen.data(), 1);
        std::vector<int32_t> possible;
        for (size_t action = 0; action < rules.size(); ++action)
          if (is_possible(rules[action], seen.data())) possible.push_back(static_cast<int32_t>(action));
        return possible[random_below(key, static_cast<uint64_t>(state.day), static_cast<uint32_t>(possible.size()))];
      };
    });
  };
  std::vector<std::pair<double, int32_t>> players;
  for (int32_t player = 0; player < plan.players; ++player) players.emplace_back(return_of(play(player).curve), player);
  std::sort(players.begin(), players.end());
  for (const auto& [value, player] : players) returns.push_back(value);
  return play(players[(players.size() - 1) / 2].second);
}

OptionsPolicy direction_policy(const std::vector<int8_t>& directions, int32_t strike, int32_t positions) {
  return [&directions, strike, positions](const OptionsState& state) {
    const bool put = directions[static_cast<size_t>(state.day)] < 0;
    bool room = false;
    for (int32_t slot = 0; slot < positions; ++slot) {
      const OptionPosition& held = state.positions[slot];
      if (held.contracts > 0 && (held.legs[0].put != 0) != put) return kSellFirst + slot;
      room = room || held.contracts == 0;
    }
    return !room ? kHold : strike + (put ? kBuyPut : kBuyCall);
  };
}

Baseline known_rule(const OptionsEnvironment& environment, const std::vector<std::string>& names,
                    const BaselinePlan& plan) {
  const int32_t positions = environment.rules().positions;
  const auto play = [&](const OptionsEnvironment& days, int32_t strike) {
    return by_policy(days, names, "known rule", fmt::format("calls or puts {} % away, by the doubled volume", strike),
                     [&](int32_t) { return direction_policy(plan.directions, strike, positions); });
  };
  int32_t best = 0;
  double most = -1;
  for (int32_t strike = 0; plan.training && strike < kBuyPut - kBuyCall; ++strike)
    if (const double earned = return_of(play(*plan.training, strike).curve); earned > most)
      most = earned, best = strike;
  return play(environment, best);
}

std::vector<double> exponential_means(const std::vector<double>& values, int32_t days) {
  std::vector<double> out;
  out.reserve(values.size());
  const double weight = 2.0 / (days + 1);
  for (const double v : values) out.push_back(out.empty() ? v : out.back() + weight * (v - out.back()));
  return out;
}

}  // namespace

std::vector<double> rsi_of(const MarketView& market, int32_t first, int32_t last) {
  constexpr int32_t kDays = 14;
  std::vector<double> out{50};
  double gain = 0, loss = 0;
  for (int32_t row = first + 1; row <= last; ++row) {
    const double change = market.days[row].close - market.days[row - 1].close;
    const double up = std::max(change, 0.0), down = std::max(-change, 0.0);
    const int32_t seen = row - first;
    const double keep = seen <= kDays ? 1 : (kDays - 1.0) / kDays;  // sums at first, Wilder's mean afterwards
    gain = gain * keep + (seen <= kDays ? up : up / kDays);
    loss = loss * keep + (seen <= kDays ? down : down / kDays);
    if (seen == kDays) gain /= kDays, loss /= kDays;
    out.push_back(seen < kDays || gain + loss == 0 ? 50 : 100 * gain / (gain + loss));
  }
  return out;
}

std::vector<double> macd_of(const MarketView& market, int32_t first, int32_t last) {
  std::vector<double> closes;
  for (int32_t row = first; row <= last; ++row) closes.push_back(market.days[row].close);
  const std::vector<double> fast = exponential_means(closes, 12), slow = exponential_means(closes, 26);
  std::vector<double> macd;
  for (size_t i = 0; i < closes.size(); ++i) macd.push_back(fast[i] - slow[i]);
  const std::vector<double> signal = exponential_means(macd, 9);
  for (size_t i = 0; i < closes.size(); ++i) macd[i] -= signal[i];
  return macd;
}

Baselines play_baselines(const OptionsEnvironment& environment, const std::vector<std::string>& names,
                         const BaselinePlan& plan) {
  if (plan.players < 1 || plan.share_cost < 0 || plan.share_cost >= 1)
    throw ConfigError(
        fmt::format("baselines of {} random players and {} of a share's price", plan.players, plan.share_cost),
        "there is at least one player, and a cost is a share from 0 to 1", "give other numbers");
  const MarketView& market = environment.market();
  const OptionsRules& rules = environment.rules();
  Baselines out;
  const auto shares = [&](auto play) {
    return [&, play](int32_t range) {
      return play(market, market.ranges[range], rules, plan.share_cost, symbol_of(market, names, range));
    };
  };
  const auto same = [](OptionsPolicy policy) { return [policy](int32_t) { return policy; }; };
  out.list.push_back(
      by_policy(environment, names, "cash", "does nothing", same([](const OptionsState&) { return kHold; })));
  out.list.push_back(
      over_ranges(market, "buy and hold", "shares of each symbol with all its capital", shares(hold_shares)));
  out.list.push_back(over_ranges(market, "covered call", "100-share lots, a call 2 % above the close sold on each",
                                 shares(write_covered_calls)));
  out.list.push_back(random_baseline(environment, names, plan, out.random_returns));
  out.list.push_back(by_policy(environment, names, "rsi", "a call below RSI 30, a put above 70, sold across 50",
                               [&](int32_t range) { return rsi_policy(market, range); }));
  out.list.push_back(by_policy(environment, names, "macd", "a call or a put where MACD crosses its signal",
                               [&](int32_t range) { return macd_policy(market, range); }));
  out.list.push_back(
      by_policy(environment, names, "always a call", "one at-the-money call after the other",
                same([](const OptionsState& state) { return holds_position(state) ? kHold : kBuyCall; })));
  if (!plan.directions.empty()) out.list.push_back(known_rule(environment, names, plan));
  return out;
}

Json json_of_baselines(const Baselines& baselines) {
  Json list = Json::array();
  for (const Baseline& one : baselines.list) {
    Json trades = Json::array();
    for (const ClosedTrade& t : one.trades)
      trades.push_back({t.symbol, t.opened, t.closed, t.bought_cents, t.sold_cents});
    list.push_back({{"name", one.name},
                    {"what", one.what},
                    {"dates", one.curve.dates},
                    {"cents", one.curve.cents},
                    {"held", one.curve.held},
                    {"trades", std::move(trades)},
                    {"notes", one.notes}});
  }
  return {{"list", std::move(list)}, {"random_returns", baselines.random_returns}};
}

Baselines baselines_of_json(const Json& from) {
  try {
    Baselines out;
    for (const Json& one : from.at("list")) {
      Baseline baseline{.name = one.at("name"), .what = one.at("what")};
      baseline.curve = {
          .name = baseline.name, .dates = one.at("dates"), .cents = one.at("cents"), .held = one.at("held")};
      for (const Json& t : one.at("trades")) baseline.trades.push_back({t.at(0), t.at(1), t.at(2), t.at(3), t.at(4)});
      baseline.notes = one.at("notes");
      out.list.push_back(std::move(baseline));
    }
    out.random_returns = from.at("random_returns").get<std::vector<double>>();
    return out;
  } catch (const Json::exception& error) {
    throw Error(ExitCode::kFailed, "the worker's answer about the baselines cannot be read", error.what(),
                "use a tandem and a tandem-worker of the same version");
  }
}

}  // namespace tandem
