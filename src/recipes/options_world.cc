#include "recipes/options_world.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "base/printable.h"
#include "market/dates.h"
#include "recipes/options_market.h"

namespace tandem {

OptionsWorld::OptionsWorld(const MarketData& data, const OptionsSettings& settings)
    : rules_(settings.rules()), table_(data, features_of(settings)), names_(table_.names()) {
  all_ = table_.tradable_ranges();
  FoldPlan plan = settings.fold_plan();
  plan.only = static_cast<int32_t>(settings.fold);
  fold_ = walk_forward_folds(table_.view(all_), names_, plan).front();
  scaler_ = table_.fit(fold_.train);
  table_.scale(scaler_);
}

OptionsWorld::OptionsWorld(const MarketData& data, const OptionsSettings& settings, const FeatureScaler& scaler,
                           const DateSpan& span)
    : rules_(settings.rules()), table_(data, features_of(settings)), names_(table_.names()), scaler_(scaler) {
  for (MarketView::Range range : table_.tradable_ranges()) {
    const auto date = [&](int32_t row) { return table_.days()[static_cast<size_t>(row)].date; };
    while (range.first < range.last && date(range.first) < span.first) ++range.first;
    while (range.last > range.first && date(range.last) > span.last) --range.last;
    if (range.first < range.last && date(range.first) >= span.first) all_.push_back(range);
  }
  if (all_.empty())
    throw ConfigError(fmt::format("no symbol can be traded from {} to {}", date_text(span.first), date_text(span.last)),
                      fmt::format("two days of a symbol are the least, and its first {} are history for its features",
                                  kFirstTradableDay),
                      "give other dates, or more days before them");
  table_.scale(scaler_);
}

std::unique_ptr<OptionsEnvironment> OptionsWorld::environment(const std::vector<MarketView::Range>& ranges) const {
  return std::make_unique<OptionsEnvironment>(table_.view(ranges), rules_);
}

std::vector<ValidationEpisode> OptionsWorld::validation_episodes(int64_t least) const {
  std::vector<ValidationEpisode> episodes;
  const auto symbols = static_cast<int64_t>(fold_.validation.size());
  const int64_t each = (least + symbols - 1) / symbols;
  for (int32_t range = 0; range < symbols; ++range) {
    const auto [first, last] = fold_.validation[static_cast<size_t>(range)];
    const int32_t all = last - first, days = (2 * all + 2) / 3;
    for (int64_t i = 0; i < each; ++i)
      episodes.push_back({.range = range,
                          .first = first + static_cast<int32_t>(each > 1 ? i * (all - days) / (each - 1) : 0),
                          .days = each > 1 ? days : all});
  }
  return episodes;
}

MarketData market_of_run(const OptionsSettings& settings) {
  MarketData data = load_market(market_source_of(settings));
  if (settings.data_digest.empty()) return data;
  const std::string now = data.digest();
  if (now == settings.data_digest) return data;
  const auto last = static_cast<int32_t>(settings.data_last);
  if (MarketData before = days_until(data, last); last > 0 && before.digest() == settings.data_digest) {
    before.description +=
        fmt::format(" Days after {} have arrived since the run began: they are left out.", date_text(last));
    return before;
  }
  const std::string where = settings.data.empty() ? "the generated market" : printable(settings.data);
  throw ConfigError(
      fmt::format("{} is not what the run began with", where),
      fmt::format("its digest is {}, that of the run is {}", now.substr(0, 16), settings.data_digest.substr(0, 16)),
      "put the data back; if the folder moved, `tandem resume RUN --data FOLDER` notes where it is; or begin a new "
      "run");
}

}  // namespace tandem
