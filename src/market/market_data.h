// market/market_data.h -- the days of all symbols, as read from files or generated: what features are built from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "market/bars.h"
#include "market/chain.h"

namespace tandem {

struct MarketSymbol {
  std::string name;
  std::vector<Bar> bars;            // in order, one a day
  std::vector<ImpliedDay> implied;  // one per bar, or empty: estimated from returns
};

struct MarketData {
  std::vector<MarketSymbol> symbols;  // by name
  bool generated = false;
  std::string description;            // a few lines for people: where it comes from, days, what is estimated
  std::vector<std::string> warnings;  // what the user should hear when a run begins, a sentence each

  // SHA-256 of everything that features and fills are made of: equal digests give equal training.
  std::string digest() const;
};

// The last date of any symbol; 0: there is none.
int32_t last_date(const MarketData& data);
// The same data without the days after a date. Symbols stay, also those that are left without a day.
MarketData days_until(MarketData data, int32_t date);

// The same data with other prices, volumes and volatilities on all days after `date`: what a look-ahead test asks
// about. Days up to `date` keep their bits; dates and the number of days stay.
MarketData perturbed_after(MarketData data, int32_t date, uint64_t seed);

}  // namespace tandem
