#include "market/features.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/errors.h"
#include "market/dates.h"
#include "market/generated_market.h"
#include "market/market_table.h"
#include "market/technicals.h"

namespace tandem {
namespace {

MarketData small_market(uint64_t seed = 5, double edge = 0.2) {
  return generate_market({.symbols = 3, .days = 180, .seed = seed, .edge = edge}).data;
}

double raw_feature(const MarketTable& table, int64_t row, const std::string& name) {
  const auto& names = feature_names();
  const auto at = std::find(names.begin(), names.end(), name);
  EXPECT_NE(at, names.end()) << name;
  return table.raw()[static_cast<size_t>(row * kMarketFeatures + (at - names.begin()))];
}

TEST(Features, AreExactly108WithDifferentNames) {
  EXPECT_EQ(feature_names().size(), static_cast<size_t>(kMarketFeatures));
  EXPECT_EQ(std::set<std::string>(feature_names().begin(), feature_names().end()).size(), feature_names().size());
  const MarketTable table(small_market());
  EXPECT_EQ(table.raw().size(), static_cast<size_t>(table.rows() * kMarketFeatures));
  for (const double x : table.raw()) EXPECT_TRUE(std::isfinite(x));
}

// Plain formulas, written once more by their definitions, on one day far from the start.
TEST(Features, EqualTheirTextbookFormulas) {
  const MarketData data = small_market();
  const MarketTable table(data);
  const auto& bars = data.symbols[0].bars;
  const size_t t = 150;
  const auto close = [&](size_t i) { return bars[i].close; };
  const int64_t row = static_cast<int64_t>(t);
  EXPECT_NEAR(raw_feature(table, row, "night"), std::log(bars[t].open / close(t - 1)), 1e-14);
  EXPECT_NEAR(raw_feature(table, row, "day"), std::log(close(t) / close(t - 1)), 1e-14);
  EXPECT_NEAR(raw_feature(table, row, "return 20"), std::log(close(t) / close(t - 20)), 1e-14);

  double gain = 0, loss = 0, range = 0, fast = close(0), slow = close(0), signal = 0;
  for (size_t i = 1; i <= t; ++i) {
    const double up = std::max(0.0, close(i) - close(i - 1)), down = std::max(0.0, close(i - 1) - close(i));
    gain = i <= 14 ? gain + up / 14 : (gain * 13 + up) / 14;
    loss = i <= 14 ? loss + down / 14 : (loss * 13 + down) / 14;
    fast = close(i) * 2 / 13 + fast * 11 / 13;
    slow = close(i) * 2 / 27 + slow * 25 / 27;
    signal = (fast - slow) * 0.2 + signal * 0.8;
  }
  for (size_t i = 0; i <= t; ++i) {
    double wide = bars[i].high - bars[i].low;
    if (i > 0) wide = std::max({wide, std::abs(bars[i].high - close(i - 1)), std::abs(bars[i].low - close(i - 1))});
    range = i < 14 ? range + wide / 14 : (range * 13 + wide) / 14;
  }
  EXPECT_NEAR(raw_feature(table, row, "rsi 14"), 1 - 1 / (1 + gain / loss), 1e-12);
  EXPECT_NEAR(raw_feature(table, row, "macd line"), (fast - slow) / close(t), 1e-12);
  EXPECT_NEAR(raw_feature(table, row, "macd signal"), signal / close(t), 1e-12);
  EXPECT_NEAR(raw_feature(table, row, "atr 14"), range / close(t), 1e-12);

  double mean = 0, square = 0, realized = 0, volume = 0, top = 0, bottom = 1e9;
  for (size_t i = t - 19; i <= t; ++i) {
    mean += close(i) / 20;
    realized += std::pow(std::log(close(i) / close(i - 1)), 2) / 20;
    volume += std::log(bars[i].volume + 1) / 20;
  }
  for (size_t i = t - 19; i <= t; ++i) square += std::pow(close(i) - mean, 2) / 20;
  for (size_t i = t - 13; i <= t; ++i) top = std::max(top, bars[i].high), bottom = std::min(bottom, bars[i].low);
  EXPECT_NEAR(raw_feature(table, row, "bollinger position"), (close(t) - mean) / (2 * std::sqrt(square)), 1e-10);
  EXPECT_NEAR(raw_feature(table, row, "bollinger width"), 4 * std::sqrt(square) / mean, 1e-12);
  EXPECT_NEAR(raw_feature(table, row, "realized 20"), std::sqrt(252 * realized), 1e-12);
  EXPECT_NEAR(raw_feature(table, row, "volume to mean 20"), std::log(bars[t].volume + 1) - volume, 1e-12);
  EXPECT_NEAR(raw_feature(table, row, "stochastic k"), (close(t) - bottom) / (top - bottom), 1e-12);
  EXPECT_EQ(raw_feature(table, row, "implied"), data.symbols[0].implied[t].volatility);
  const MarketDay& day = table.days()[t];
  const double years = 21.0 / 252, strike = 0.97 * day.close;
  const OptionValue put = option_value(OptionType::kPut, day.close, strike, years,
                                       smile_volatility(day.volatility, day.skew, day.close, strike, years), 0.03);
  EXPECT_NEAR(raw_feature(table, row, "put price 3"), put.price / day.close, 1e-12);
  EXPECT_NEAR(raw_feature(table, row, "put delta 3"), put.delta, 1e-10);
}

TEST(Features, OfADayDoNotChangeWhenLaterDaysDo) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    MarketData data = small_market(seed);
    if (seed % 2 == 0)
      for (MarketSymbol& symbol : data.symbols) symbol.implied.clear();  // the estimate must not look ahead either
    const MarketTable whole(data);
    const size_t day = 60 + (seed * 37) % 119;
    const int32_t date = data.symbols[0].bars[day].date;
    const MarketData other = perturbed_after(data, date, seed);
    EXPECT_NE(other.digest(), data.digest());
    const MarketTable perturbed(other);
    int64_t same = 0, different = 0;
    for (int64_t row = 0; row < whole.rows(); ++row) {
      const MarketDay &a = whole.days()[static_cast<size_t>(row)], &b = perturbed.days()[static_cast<size_t>(row)];
      const auto of = [&](const MarketTable& t) {
        return t.raw().subspan(static_cast<size_t>(row * kMarketFeatures), kMarketFeatures);
      };
      const bool equal = std::equal(of(whole).begin(), of(whole).end(), of(perturbed).begin()) && a.close == b.close &&
                         a.volatility == b.volatility && a.skew == b.skew && a.spread == b.spread && a.open == b.open;
      EXPECT_TRUE(equal || a.date > date) << "row " << row;
      ++(equal ? same : different);
    }
    EXPECT_GT(different, 0);
    EXPECT_GT(same, 0);
  }
}

TEST(Features, WithoutQuotesVolatilityIsEstimatedFromReturnsWithThePremium) {
  MarketData data = generate_market({.symbols = 4, .days = 1000, .seed = 9}).data;
  for (MarketSymbol& symbol : data.symbols) symbol.implied.clear();
  const std::vector<MarketDay> days = market_days(data.symbols[0], 0, {.premium = 1.5, .skew = -0.2});
  const Series estimate = estimated_volatility(data.symbols[0].bars);
  EXPECT_EQ(days[500].volatility, 1.5 * estimate[500]);
  EXPECT_EQ(days[500].skew, -0.2);
  EXPECT_EQ(days[500].spread, 0);
}

TEST(Features, AQuoteIsKnownForFiveDaysAndThenEstimated) {
  MarketData data = small_market();
  MarketSymbol& symbol = data.symbols[0];
  for (size_t i = 100; i < 120; ++i) symbol.implied[i].volatility = 0;
  const std::vector<MarketDay> days = market_days(symbol, 0, {});
  EXPECT_EQ(days[104].volatility, symbol.implied[99].volatility);
  EXPECT_EQ(days[105].volatility, 1.1 * estimated_volatility(symbol.bars)[105]);
  EXPECT_EQ(days[120].volatility, symbol.implied[120].volatility);
}

TEST(Features, EstimatedVolatilityIsNearTheTrueOne) {
  const GeneratedMarket market = generate_market({.symbols = 6, .days = 2000, .seed = 3});
  double ratio = 0, count = 0;
  for (size_t s = 0; s < 6; ++s) {
    const Series estimate = estimated_volatility(market.data.symbols[s].bars);
    for (size_t i = 60; i < 2000; ++i) ratio += std::log(estimate[i] / market.volatility[s][i]), count += 1;
  }
  EXPECT_NEAR(ratio / count, 0.0, 0.12);  // jumps are in the estimate, ranges of 16 pieces are a little narrow
}

TEST(MarketTable, ASymbolIsTradableFromItsFirstWholeWindow) {
  const MarketTable table(small_market());
  ASSERT_EQ(table.symbols().size(), 3u);
  EXPECT_EQ(table.symbols()[1].first, 180);
  EXPECT_EQ(table.symbols()[1].last, 359);
  EXPECT_EQ(table.symbols()[1].first_tradable, 180 + 79);
  EXPECT_EQ(table.tradable_ranges()[2].first, 360 + 79);
  EXPECT_EQ(table.tradable_ranges()[2].last, 539);
  for (int32_t row = 180; row < 240; ++row)
    EXPECT_EQ(table.raw()[static_cast<size_t>(row) * kMarketFeatures + 3], 0) << "history";
  EXPECT_NE(table.raw()[240u * kMarketFeatures + 3], 0);
}

TEST(MarketTable, TheScalerSeesTrainingRowsOnly) {
  const MarketData data = small_market();
  const MarketTable table(data);
  std::vector<MarketView::Range> training;
  for (const TableSymbol& symbol : table.symbols()) training.push_back({symbol.first_tradable, symbol.first + 120});
  const FeatureScaler scaler = table.fit(training);
  const MarketTable other(perturbed_after(data, data.symbols[0].bars[120].date, 1));
  const FeatureScaler again = other.fit(training);
  EXPECT_EQ(scaler.mean, again.mean);
  EXPECT_EQ(scaler.deviation, again.deviation);
  std::vector<MarketView::Range> all = table.tradable_ranges();
  EXPECT_NE(table.fit(all).mean, scaler.mean);
}

TEST(MarketTable, ScaledTrainingRowsHaveMeanZeroAndDeviationOneWithinTheClip) {
  MarketTable table(generate_market({.symbols = 3, .days = 600, .seed = 4}).data);
  const std::vector<MarketView::Range> all = table.tradable_ranges();
  EXPECT_TRUE(table.features().empty());
  table.scale(table.fit(all));
  const MarketView view = table.view(all);
  EXPECT_EQ(view.rows, 1800);
  EXPECT_EQ(view.range_count, 3);
  double sum = 0, square = 0, count = 0;
  const size_t day = 3;
  for (const auto& [first, last] : all)
    for (int32_t row = first; row <= last; ++row) {
      for (size_t i = 0; i < kMarketFeatures; ++i) {
        const float x = view.features[static_cast<size_t>(row) * kMarketFeatures + i];
        EXPECT_LE(std::abs(x), 5.0F);
      }
      const double x = view.features[static_cast<size_t>(row) * kMarketFeatures + day];
      sum += x, square += x * x, count += 1;
    }
  EXPECT_NEAR(sum / count, 0, 0.02);
  EXPECT_NEAR(square / count, 1, 0.1);
  for (size_t i = 0; i < kMarketFeatures; ++i) EXPECT_EQ(view.features[i], 0.0F);  // history
}

TEST(MarketTable, RefusesAScalerWithoutRowsOrOfAnotherSize) {
  MarketTable table(small_market());
  const MarketView::Range history[] = {{0, 59}};
  EXPECT_THROW(table.fit(history), ConfigError);
  EXPECT_THROW(table.scale({}), ConfigError);
  FeatureScaler scaler = table.fit(table.tradable_ranges());
  scaler.deviation[7] = 0;
  EXPECT_THROW(table.scale(scaler), ConfigError);
}

}  // namespace
}  // namespace tandem
