// recipes/options_market.h -- the data of `options`, as its settings name it.
#pragma once

#include "market/market_source.h"
#include "recipes/options_settings.h"

namespace tandem {

static_assert(OptionsSettings::kWarmUpDays == kFirstTradableDay);

inline FeatureOptions features_of(const OptionsSettings& settings) {
  FeatureOptions options;
  options.premium = settings.premium;
  options.skew = settings.skew;
  options.rate = settings.rate;
  options.expiry_days = static_cast<int32_t>(settings.expiry_days);
  return options;
}

inline MarketSource market_source_of(const OptionsSettings& settings) {
  MarketSource source;
  source.folder = settings.data;
  source.folder_options.python = settings.python;
  source.folder_options.rate = settings.rate;
  source.folder_options.rules.accept_jumps = settings.accept_jumps;
  for (size_t begin = 0; begin < settings.symbols.size();) {
    const size_t end = std::min(settings.symbols.find(',', begin), settings.symbols.size());
    source.folder_options.symbols.push_back(settings.symbols.substr(begin, end - begin));
    begin = end + 1;
  }
  source.generated.symbols = static_cast<int32_t>(settings.market.symbols);
  source.generated.days = static_cast<int32_t>(settings.market.days);
  source.generated.seed = static_cast<uint64_t>(settings.market.seed);
  source.generated.edge = settings.market.edge;
  source.generated.fair = settings.market.fair;
  source.features = features_of(settings);
  return source;
}

}  // namespace tandem
