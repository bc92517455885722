#include "market/generated_market.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "market/market_source.h"

namespace tandem {
namespace {

TEST(GeneratedMarket, IsAPureFunctionOfItsOptions) {
  const GeneratedMarketOptions options{.symbols = 3, .days = 200, .seed = 7, .edge = 0.1};
  EXPECT_EQ(generate_market(options).data.digest(), generate_market(options).data.digest());
  GeneratedMarketOptions other = options;
  other.seed = 8;
  EXPECT_NE(generate_market(options).data.digest(), generate_market(other).data.digest());
  // A symbol's days do not depend on how many others there are, nor on the days after.
  const GeneratedMarket wide = generate_market({.symbols = 5, .days = 300, .seed = 7, .edge = 0.1});
  const GeneratedMarket narrow = generate_market(options);
  EXPECT_EQ(wide.data.symbols[2].bars[199].close, narrow.data.symbols[2].bars[199].close);
}

TEST(GeneratedMarket, ItsBitsNeverChange) {
  const GeneratedMarketOptions options{.symbols = 2, .days = 150, .seed = 1, .edge = 0.25};
  EXPECT_EQ(generate_market(options).data.digest().substr(0, 16), "3ea5ac6b127b7bd5");
}

TEST(GeneratedMarket, SaysThatItIsGenerated) {
  const MarketData data = load_market({.generated = {.symbols = 2, .days = 120}});
  EXPECT_TRUE(data.generated);
  EXPECT_EQ(data.description.find("GENERATED MARKET, NOT REAL PRICES"), 0u);
}

TEST(GeneratedMarket, ItsBarsPassTheCheckOfRealOnes) {
  const GeneratedMarket market = generate_market({.symbols = 8, .days = 1500, .seed = 2, .edge = 0.3});
  DataFindings findings;
  for (const MarketSymbol& symbol : market.data.symbols)
    check_bars({symbol.name, symbol.name, symbol.bars}, {.least_bars = 100}, findings);
  EXPECT_EQ(findings.errors(), 0) << findings.render();
}

TEST(GeneratedMarket, WithoutAnEdgeTheMeanReturnIsZeroAndVolumeSaysNothing) {
  const GeneratedMarket market = generate_market({.symbols = 40, .days = 2000, .seed = 11});
  double sum = 0, square = 0, by_volume = 0, count = 0, most = 0;
  for (size_t s = 0; s < market.data.symbols.size(); ++s) {
    const auto& bars = market.data.symbols[s].bars;
    for (size_t i = 1; i < bars.size(); ++i) {
      const double x = bars[i].close / bars[i - 1].close - 1;
      sum += x, square += x * x, count += 1;
      by_volume += x * (bars[i - 1].volume / kPlainVolume - 1) / 0.07;
      most = std::max(most, bars[i].volume);
    }
  }
  const double error = std::sqrt(square / count / count);  // of the mean
  EXPECT_LT(std::abs(sum / count), 4 * error);
  EXPECT_LT(std::abs(by_volume / count), 4 * error);
  EXPECT_LT(most, 1.5 * kPlainVolume);
}

TEST(GeneratedMarket, TheVolumeTellsTheDirectionAndTheDirectionTheReturn) {
  const double edge = 0.3;
  const GeneratedMarket market = generate_market({.symbols = 20, .days = 2000, .seed = 12, .edge = edge});
  double with = 0, next = 0, turns = 0, count = 0;
  for (size_t s = 0; s < market.data.symbols.size(); ++s) {
    const auto& bars = market.data.symbols[s].bars;
    for (size_t i = 1; i < bars.size(); ++i) {
      const double daily = market.volatility[s][i] / std::sqrt(252.0);
      const double x = std::log(bars[i].close / bars[i - 1].close) / daily;
      const int now = direction_of_volume(bars[i].volume), before = direction_of_volume(bars[i - 1].volume);
      EXPECT_EQ(now, market.direction[s][i]);
      with += x * now, next += x * before, turns += now != before, count += 1;
    }
  }
  EXPECT_NEAR(with / count, edge, 0.02);
  EXPECT_NEAR(next / count, edge * (1 - 2.0 / 30), 0.02);
  EXPECT_NEAR(turns / count, 1.0 / 30, 0.003);
}

TEST(GeneratedMarket, HasStochasticVolatilityJumpsAndTheFallThatRaisesVolatility) {
  const GeneratedMarket market = generate_market({.symbols = 20, .days = 2000, .seed = 13});
  double fourth = 0, square = 0, count = 0, joint = 0, change_square = 0, low = 1e9, high = 0, ratio = 0;
  for (size_t s = 0; s < market.data.symbols.size(); ++s) {
    const auto& bars = market.data.symbols[s].bars;
    for (size_t i = 1; i + 1 < bars.size(); ++i) {
      const double x = std::log(bars[i].close / bars[i - 1].close);
      const double change = market.volatility[s][i + 1] - market.volatility[s][i];
      square += x * x, fourth += x * x * x * x, joint += x * change, change_square += change * change, count += 1;
      low = std::min(low, market.volatility[s][i]), high = std::max(high, market.volatility[s][i]);
      ratio += market.data.symbols[s].implied[i].volatility / market.volatility[s][i];
    }
  }
  EXPECT_GT(fourth / count / std::pow(square / count, 2), 4.0);  // a normal distribution has 3
  EXPECT_LT(joint / std::sqrt(square * change_square), -0.3);
  EXPECT_GT(high / low, 4);
  EXPECT_NEAR(ratio / count, 1.15, 0.15);
}

TEST(GeneratedMarket, RefusesWhatItCannotMake) {
  EXPECT_THROW(generate_market({.symbols = 0}), ConfigError);
  EXPECT_THROW(generate_market({.days = 50}), ConfigError);
  EXPECT_THROW(generate_market({.edge = -0.1}), ConfigError);
  EXPECT_THROW(generate_market({.edge = NAN}), ConfigError);
  EXPECT_THROW(generate_market({.volatility = 3}), ConfigError);
  EXPECT_THROW(generate_market({.edge = 0.1, .fair = true}), ConfigError) << "whoever knows the direction earns";
}

}  // namespace
}  // namespace tandem
