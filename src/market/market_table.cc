#include "market/market_table.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/errors.h"
#include "market/forecast_targets.h"

namespace tandem {

float FeatureScaler::apply(size_t feature, double value) const {
  const double scaled = (value - mean[feature]) / deviation[feature];
  return static_cast<float>(scaled > kClip ? kClip : scaled < -kClip ? -kClip : scaled);
}

MarketTable::MarketTable(const MarketData& data, const FeatureOptions& options) {
  for (size_t i = 0; i < data.symbols.size(); ++i) {
    const MarketSymbol& symbol = data.symbols[i];
    const std::vector<MarketDay> days = market_days(symbol, static_cast<int32_t>(i), options);
    const size_t first = days_.size(), last = first + days.size();
    if (last > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
      throw ConfigError("the market data have too many days", "rows are counted up to 2,147,483,647",
                        "choose fewer symbols");
    append_features(symbol, days, options, raw_);
    append_forecast_targets(symbol, days, forecasts_);
    days_.insert(days_.end(), days.begin(), days.end());
    symbols_.push_back({symbol.name, static_cast<int32_t>(first), static_cast<int32_t>(last) - 1,
                        static_cast<int32_t>(first) + kFirstTradableDay});
  }
}

std::vector<std::string> MarketTable::names() const {
  std::vector<std::string> out;
  for (const TableSymbol& symbol : symbols_) out.push_back(symbol.name);
  return out;
}

bool MarketTable::has_history(size_t row) const {
  const TableSymbol& symbol = symbols_[static_cast<size_t>(days_[row].symbol)];
  return row >= static_cast<size_t>(symbol.first + kHistoryDays);
}

FeatureScaler MarketTable::fit(std::span<const MarketView::Range> training) const {
  std::vector<bool> chosen(days_.size());
  double count = 0;
  for (const auto& [first, last] : training)
    for (int64_t row = first; row <= last && row < rows(); ++row)
      if (row >= 0 && !chosen[static_cast<size_t>(row)] && has_history(static_cast<size_t>(row)))
        chosen[static_cast<size_t>(row)] = true, count += 1;
  if (count == 0)
    throw ConfigError("there are no training days to scale the features by",
                      fmt::format("a symbol's first {} days are history for its features", kHistoryDays),
                      "give more days of data, or train on a larger share of them");
  FeatureScaler scaler{std::vector<double>(kMarketFeatures), std::vector<double>(kMarketFeatures)};
  const auto over_rows = [&](auto&& f) {
    for (size_t row = 0; row < chosen.size(); ++row)
      if (chosen[row])
        for (size_t i = 0; i < kMarketFeatures; ++i) f(i, raw_[row * kMarketFeatures + i]);
  };
  over_rows([&](size_t i, double x) { scaler.mean[i] += x; });
  for (double& mean : scaler.mean) mean /= count;
  over_rows([&](size_t i, double x) { scaler.deviation[i] += (x - scaler.mean[i]) * (x - scaler.mean[i]); });
  for (size_t i = 0; i < kMarketFeatures; ++i) {
    double& deviation = scaler.deviation[i];
    deviation = std::sqrt(deviation / count);
    // A feature that does not vary in training says nothing: it stays near 0 instead of being blown up.
    if (!(deviation > 1e-9 * (1 + std::fabs(scaler.mean[i])))) deviation = 1;
  }
  return scaler;
}

void MarketTable::scale(const FeatureScaler& scaler) {
  bool good = scaler.mean.size() == kMarketFeatures && scaler.deviation.size() == kMarketFeatures;
  for (size_t i = 0; good && i < kMarketFeatures; ++i)
    good = std::isfinite(scaler.mean[i]) && std::isfinite(scaler.deviation[i]) && scaler.deviation[i] > 0;
  if (!good)
    throw ConfigError("the scaler of the features does not fit",
                      fmt::format("it needs {} means and as many deviations above 0", kMarketFeatures),
                      "take the one of a run of this version");
  features_.assign(raw_.size(), 0.0F);
  for (size_t row = 0; row < days_.size(); ++row) {
    if (!has_history(row)) continue;
    for (size_t i = 0; i < kMarketFeatures; ++i)
      features_[row * kMarketFeatures + i] = scaler.apply(i, raw_[row * kMarketFeatures + i]);
  }
}

MarketView MarketTable::view(std::span<const MarketView::Range> ranges) const {
  return {.days = days_.data(),
          .features = features_.empty() ? nullptr : features_.data(),
          .forecasts = forecasts_.data(),
          .rows = rows(),
          .ranges = ranges.data(),
          .range_count = static_cast<int32_t>(ranges.size())};
}

std::vector<MarketView::Range> MarketTable::tradable_ranges() const {
  std::vector<MarketView::Range> out;
  for (const TableSymbol& symbol : symbols_)
    if (symbol.first_tradable < symbol.last) out.push_back({symbol.first_tradable, symbol.last});
  return out;
}

}  // namespace tandem
