// market/market_table.h -- the rows of all symbols with their features, scaled by what training days have.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "market/features.h"
#include "market/market_data.h"
#include "market/market_view.h"

namespace tandem {

// Of each feature. Fitted on training rows only, kept with the run as doubles, applied to all rows.
struct FeatureScaler {
  std::vector<double> mean, deviation;
  static constexpr double kClip = 5;  // deviations; what lies beyond counts as the end
  float apply(size_t feature, double value) const;
};

struct TableSymbol {
  std::string name;
  int32_t first = 0, last = 0;  // rows, both included
  // The first row whose window of kWindow rows is whole; above `last` where the symbol has none.
  int32_t first_tradable = 0;
};

class MarketTable {
 public:
  explicit MarketTable(const MarketData& data, const FeatureOptions& options = {});

  int64_t rows() const { return static_cast<int64_t>(days_.size()); }
  std::span<const MarketDay> days() const { return days_; }
  const std::vector<TableSymbol>& symbols() const { return symbols_; }
  std::vector<std::string> names() const;
  std::span<const double> raw() const { return raw_; }  // [rows, kMarketFeatures], before scaling

  // Of rows in these ranges that have enough history. Throws ConfigError if there is none.
  FeatureScaler fit(std::span<const MarketView::Range> training) const;
  // Makes features(); rows without enough history stay 0. Throws ConfigError if it is no scaler of kMarketFeatures.
  void scale(const FeatureScaler& scaler);
  std::span<const float> features() const { return features_; }  // empty before scale()

  // Of this table's memory: lives as long as it and `ranges`.
  MarketView view(std::span<const MarketView::Range> ranges) const;
  // Each symbol from its first tradable row to its last, those without any left out.
  std::vector<MarketView::Range> tradable_ranges() const;

 private:
  bool has_history(size_t row) const;

  std::vector<MarketDay> days_;
  std::vector<double> raw_;
  std::vector<float> features_, forecasts_;
  std::vector<TableSymbol> symbols_;
};

}  // namespace tandem
