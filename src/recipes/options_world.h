// recipes/options_world.h -- what a run of `options` trades on: its data, the fold that it learns from and is judged
// by, features scaled by what the training days have.
//
// Everything follows from the settings and the data, on every worker alike. The pieces point into each other, so a
// world stays where it is.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "market/folds.h"
#include "market/market_table.h"
#include "market/options_environment.h"
#include "recipes/options_settings.h"

namespace tandem {

// One episode of the validation: from row `first` of a range on, for `days` days.
struct ValidationEpisode {
  int32_t range = 0, first = 0, days = 0;
};

// Dates, both included.
struct DateSpan {
  int32_t first = 0, last = 99991231;
};

class OptionsWorld {
 public:
  // Cut into the fold of the settings; the scaler is fitted on its training days. Throws ConfigError.
  OptionsWorld(const MarketData& data, const OptionsSettings& settings);
  // Other data, all days within `span` that can be traded, scaled as a run was trained. Throws ConfigError where there
  // are none.
  OptionsWorld(const MarketData& data, const OptionsSettings& settings, const FeatureScaler& scaler,
               const DateSpan& span = {});
  OptionsWorld(const OptionsWorld&) = delete;
  OptionsWorld& operator=(const OptionsWorld&) = delete;

  const std::vector<std::string>& names() const { return names_; }
  const FeatureScaler& scaler() const { return scaler_; }
  const MarketFold& fold() const { return fold_; }
  std::unique_ptr<OptionsEnvironment> environment(const std::vector<MarketView::Range>& ranges) const;
  const std::vector<MarketView::Range>& all_ranges() const { return all_; }

  // At least `least` of them, equally many of each symbol: each two thirds of its validation days long, their first
  // days spread evenly over the rest.
  std::vector<ValidationEpisode> validation_episodes(int64_t least) const;

 private:
  OptionsRules rules_;
  MarketTable table_;
  std::vector<std::string> names_;
  MarketFold fold_;
  std::vector<MarketView::Range> all_;
  FeatureScaler scaler_;
};

// The data of a run: as its settings name it, and what it began with, without days that have arrived since. Throws
// ConfigError if it is not.
MarketData market_of_run(const OptionsSettings& settings);

}  // namespace tandem
