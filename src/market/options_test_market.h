// market/options_test_market.h -- small markets for tests of the options environment.
#pragma once

#include <vector>

#include "kernels/philox.h"
#include "market/market_view.h"
#include "market/option_math.h"

namespace tandem {

struct OptionsTestMarket {
  std::vector<MarketDay> days;
  std::vector<float> features;
  std::vector<MarketView::Range> ranges;

  MarketView view() const {
    return {.days = days.data(),
            .features = features.data(),
            .rows = static_cast<int64_t>(days.size()),
            .ranges = ranges.data(),
            .range_count = static_cast<int32_t>(ranges.size())};
  }
};

// One symbol whose price and volatility do not move.
inline OptionsTestMarket flat_options_market(int days, double price = 100, double volatility = 0.2) {
  OptionsTestMarket market;
  for (int i = 0; i < days; ++i) market.days.push_back({price, price, price, price, volatility, 0, 0, 20200000 + i, 0});
  market.features.resize(market.days.size() * kMarketFeatures);
  market.ranges = {{kWindow - 1, days - 1}};
  return market;
}

// Symbols that walk at random, with gaps overnight, a moving volatility and a skew; the second one has its own spread.
inline OptionsTestMarket random_options_market(int symbols, int days, uint64_t seed, double daily = 0.02) {
  OptionsTestMarket market;
  for (int s = 0; s < symbols; ++s) {
    double close = s == 1 ? 7.0 : 40.0 * (s + 1), volatility = 0.25;
    const auto first = static_cast<int32_t>(market.days.size());
    for (int i = 0; i < days; ++i) {
      const RandomKey key{seed, static_cast<uint64_t>(i), static_cast<uint32_t>(s), 1};
      const auto normal = [&](int k) { return static_cast<double>(random_normal(key, static_cast<uint64_t>(k))); };
      MarketDay day{.date = 20200000 + i, .symbol = s};
      day.open = close * exact_exp(0.5 * daily * normal(0));
      day.close = day.open * exact_exp(daily * normal(1));
      day.high = (day.open > day.close ? day.open : day.close) * 1.01;
      day.low = (day.open < day.close ? day.open : day.close) * 0.99;
      volatility = volatility * exact_exp(0.05 * normal(2));
      day.volatility = volatility < 0.08 ? 0.08 : volatility > 0.9 ? 0.9 : volatility;
      day.skew = -0.05 + 0.02 * normal(3);
      day.spread = s == 1 ? 0.04 : 0;
      close = day.close;
      market.days.push_back(day);
    }
    const auto last = static_cast<int32_t>(market.days.size()) - 1;
    const int32_t half = (first + kWindow - 1 + last) / 2;
    market.ranges.push_back({first + kWindow - 1, half});
    market.ranges.push_back({half + 1, last});
  }
  market.features.resize(market.days.size() * kMarketFeatures);
  for (size_t i = 0; i < market.features.size(); ++i) market.features[i] = static_cast<float>(i % 97) * 0.01f;
  return market;
}

}  // namespace tandem
