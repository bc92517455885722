#include "market/generated_market.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "kernels/philox.h"
#include "market/dates.h"
#include "market/features.h"
#include "market/option_math.h"

namespace tandem {

namespace {

constexpr double kDay = 1.0 / 252;
constexpr int kPieces = 16;            // of a session
constexpr double kNight = 0.3;         // of a day's variance
constexpr double kReturn = 6;          // mean reversion of variance, a year's
constexpr double kVolOfVol = 0.5;      // of Heston's variance process
constexpr double kCorrelation = -0.6;  // of returns and variance
constexpr double kJumps = 4;           // a year
constexpr double kJumpMean = -0.005, kJumpDeviation = 0.025;
constexpr double kRegimeTurn = 1.0 / 120;  // of the level of volatility, a day
constexpr int kFirstDay = 16440;           // 2015-01-05, a Monday

// Random numbers of a symbol's day; their places are part of what a seed means.
enum Draw : uint64_t {
  kDirectionDraw,
  kRegimeDraw,
  kRegimeChoice,
  kVarianceDraw,
  kJumpDraw,
  kJumpSize,
  kVolumeDraw,
  kImpliedDraw,
  kSkewDraw,
  kNightDraw,
  kPieceDraws
};
constexpr uint32_t kMarketSite = 0x4D4B;

struct SymbolState {
  double close = 100, variance = 0, level = 0;  // level: long-run variance
  int direction = 1;
};

double level_of(const GeneratedMarketOptions& options, uint32_t regime) {
  constexpr double kFactors[] = {0.5, 1.0, 2.0};
  const double volatility = options.volatility * kFactors[regime];
  return volatility * volatility;
}

void turn(SymbolState& state, const RandomKey& key, const GeneratedMarketOptions& options) {
  if (random_uniform(key, kDirectionDraw) < kTurnProbability) state.direction = -state.direction;
  if (!options.fair && random_uniform(key, kRegimeDraw) < kRegimeTurn)
    state.level = level_of(options, random_below(key, kRegimeChoice, 3));
}

double rounded_price(double price) { return std::max(0.0001, std::floor(price * 1e4 + 0.5) / 1e4); }

// A day: night, then the session in pieces. The mean of exp(log return) is 1 at edge 0: every part has its drift taken
// off. Of a fair market the session is the day: an option that is filled at the open has its whole days before it.
Bar make_bar(SymbolState& state, const RandomKey& key, const GeneratedMarketOptions& options) {
  const double variance = state.variance * kDay, night_share = options.fair ? 0 : kNight;
  const double drift = options.edge * state.direction * std::sqrt(variance);
  double jump = 0;
  const double chance = options.fair ? 0 : kJumps * kDay;
  const double jump_gain = exact_exp(kJumpMean + 0.5 * kJumpDeviation * kJumpDeviation) - 1;  // mean, less 1
  if (random_uniform(key, kJumpDraw) < chance) jump = kJumpMean + kJumpDeviation * random_normal(key, kJumpSize);
  const double compensator = exact_log(1 + chance * jump_gain);
  const double night = night_share * variance, piece = (1 - night_share) * variance / kPieces;
  const double diffusion = std::sqrt(night) * random_normal(key, kNightDraw);
  Bar bar;
  bar.open = state.close * exact_exp(diffusion - 0.5 * night + night_share * drift + jump - compensator);
  double price = bar.open, high = bar.open, low = bar.open, normal_sum = diffusion;
  for (uint64_t i = 0; i < kPieces; ++i) {
    const double step = std::sqrt(piece) * random_normal(key, kPieceDraws + i);
    price *= exact_exp(step - 0.5 * piece + (1 - night_share) / kPieces * drift);
    normal_sum += step;
    high = std::max(high, price), low = std::min(low, price);
  }
  bar.open = rounded_price(bar.open), bar.close = rounded_price(price);
  bar.high = rounded_price(high), bar.low = rounded_price(low);
  state.close = bar.close;
  if (options.fair) return bar;
  // Tomorrow's variance, by the day's shock and one of its own; never below a tenth of its level.
  const double shock = normal_sum / std::sqrt(variance);
  const double own = random_normal(key, kVarianceDraw);
  const double mixed = kCorrelation * shock + std::sqrt(1 - kCorrelation * kCorrelation) * own;
  const double next = state.variance + kReturn * (state.level - state.variance) * kDay +
                      kVolOfVol * std::sqrt(state.variance * kDay) * mixed;
  state.variance = std::max(next, 0.1 * state.level);
  return bar;
}

// A month's expected volatility, jumps in, from tomorrow's variance.
ImpliedDay implied_of(const SymbolState& state, const RandomKey& key, const GeneratedMarketOptions& options) {
  if (options.fair) return {.volatility = std::sqrt(state.variance)};
  const double years = 21 * kDay, fade = (1 - exact_exp(-kReturn * years)) / (kReturn * years);
  const double jumps = kJumps * (kJumpMean * kJumpMean + kJumpDeviation * kJumpDeviation);
  const double expected = state.level + (state.variance - state.level) * fade + jumps;
  ImpliedDay day;
  day.volatility = options.premium * std::sqrt(expected) * exact_exp(0.02 * random_normal(key, kImpliedDraw));
  day.skew = -0.10 + 0.01 * random_normal(key, kSkewDraw);
  return day;
}

void check_generated(const GeneratedMarketOptions& options) {
  const auto refuse = [](const std::string& what, const std::string& range) {
    throw ConfigError("the generated market cannot be made", what, "choose " + range);
  };
  if (options.symbols < 1 || options.symbols > 1000)
    refuse(fmt::format("{} symbols", options.symbols), "1 to 1,000 symbols");
  if (options.days < kLeastMarketDays || options.days > 50000)
    refuse(fmt::format("{} days", options.days), fmt::format("{} to 50,000 days", kLeastMarketDays));
  if (!(options.edge >= 0 && options.edge <= 1)) refuse(fmt::format("an edge of {}", options.edge), "0 to 1");
  if (!(options.premium >= 0.5 && options.premium <= 3))
    refuse(fmt::format("a premium of {}", options.premium), "0.5 to 3");
  if (!(options.volatility >= 0.02 && options.volatility <= 1))
    refuse(fmt::format("a volatility of {}", options.volatility), "0.02 to 1");
  if (options.fair && options.edge > 0)
    refuse(fmt::format("fair, with an edge of {}", options.edge), "one of them: whoever knows the direction earns");
}

}  // namespace

GeneratedMarket generate_market(const GeneratedMarketOptions& options) {
  check_generated(options);
  GeneratedMarket out;
  out.data.generated = true;
  for (int32_t s = 0; s < options.symbols; ++s) {
    MarketSymbol& symbol = out.data.symbols.emplace_back();
    auto& directions = out.direction.emplace_back();
    auto& volatilities = out.volatility.emplace_back();
    symbol.name = fmt::format("GENERATED{:02}", s + 1);
    const RandomKey start{options.seed, 0, static_cast<uint32_t>(s), kMarketSite};
    SymbolState state;
    state.level = level_of(options, random_below(start, kRegimeChoice, 3));
    state.variance = state.level;
    state.direction = random_uniform(start, kDirectionDraw) < 0.5F ? -1 : 1;
    int64_t calendar = kFirstDay;
    for (int32_t day = 0; day < options.days; ++day) {
      const RandomKey key{options.seed, static_cast<uint64_t>(day) + 1, static_cast<uint32_t>(s), kMarketSite};
      turn(state, key, options);
      directions.push_back(static_cast<int8_t>(state.direction));
      volatilities.push_back(std::sqrt(state.variance));
      Bar bar = make_bar(state, key, options);
      bar.date = date_of_day(calendar);
      const double noise = std::clamp(0.07 * static_cast<double>(random_normal(key, kVolumeDraw)), -0.2, 0.2);
      const bool doubled = options.edge > 0 && state.direction > 0;
      bar.volume = std::floor(kPlainVolume * (doubled ? 2 : 1) * (1 + noise));
      symbol.bars.push_back(bar);
      symbol.implied.push_back(implied_of(state, key, options));
      symbol.implied.back().date = bar.date;
      calendar += weekday(bar.date) == 4 ? 3 : 1;
    }
  }
  out.data.description = fmt::format(
      "GENERATED MARKET, NOT REAL PRICES: {} symbols, {} days, seed {}, {}. Nothing learned here holds for a real "
      "market.",
      options.symbols, options.days, options.seed,
      options.edge > 0 ? fmt::format("with a known edge of {:g} daily deviations", options.edge)
      : options.fair   ? "fair: options cost what they pay on average"
                     : "without a direction to learn; calls cost more than they pay on average, so their sellers earn");
  return out;
}

}  // namespace tandem
