#include "market/market_data.h"

#include <algorithm>
#include <span>

#include "base/sha256.h"
#include "kernels/philox.h"

namespace tandem {

namespace {

template <class T>
void add_to_digest(Sha256& sum, const T& value) {
  sum.update(std::as_bytes(std::span(&value, 1)));
}

}  // namespace

std::string MarketData::digest() const {
  Sha256 sum;
  add_to_digest(sum, static_cast<uint64_t>(symbols.size()));
  for (const MarketSymbol& symbol : symbols) {
    add_to_digest(sum, static_cast<uint64_t>(symbol.name.size()));
    sum.update(symbol.name);
    add_to_digest(sum, static_cast<uint64_t>(symbol.bars.size()));
    for (const Bar& bar : symbol.bars) {
      for (const double x : {bar.open, bar.high, bar.low, bar.close, bar.volume}) add_to_digest(sum, x);
      add_to_digest(sum, bar.date);
    }
    add_to_digest(sum, static_cast<uint64_t>(symbol.implied.size()));
    for (const ImpliedDay& day : symbol.implied) {
      for (const double x : {day.volatility, day.skew, day.spread}) add_to_digest(sum, x);
      add_to_digest(sum, day.date);
    }
  }
  return sum.hex();
}

int32_t last_date(const MarketData& data) {
  int32_t last = 0;
  for (const MarketSymbol& symbol : data.symbols)
    if (!symbol.bars.empty()) last = std::max(last, symbol.bars.back().date);
  return last;
}

MarketData days_until(MarketData data, int32_t date) {
  for (MarketSymbol& symbol : data.symbols) {
    const auto after = std::ranges::upper_bound(symbol.bars, date, {}, &Bar::date);
    symbol.bars.erase(after, symbol.bars.end());
    if (!symbol.implied.empty()) symbol.implied.resize(symbol.bars.size());
  }
  return data;
}

MarketData perturbed_after(MarketData data, int32_t date, uint64_t seed) {
  for (size_t s = 0; s < data.symbols.size(); ++s) {
    MarketSymbol& symbol = data.symbols[s];
    double level = 1;
    for (size_t i = 0; i < symbol.bars.size(); ++i) {
      Bar& bar = symbol.bars[i];
      if (bar.date <= date) continue;
      const RandomKey key{seed, i, static_cast<uint32_t>(s), 0};
      level *= exact_exp(0.05 * random_normal(key, 0));
      if (level > 50 || level < 0.02) level = 1;
      // Every price by a factor of its own: nothing of the day survives, also not its direction or its range.
      const auto moved = [&](double price, uint64_t k) {
        return price * level * exact_exp(0.02 * random_normal(key, k));
      };
      const double open = moved(bar.open, 5), close = moved(bar.close, 6);
      const double above = 1 + 0.02 * random_uniform(key, 7), below = 1 - 0.02 * random_uniform(key, 8);
      bar.open = open, bar.close = close;
      bar.high = std::max(open, close) * above, bar.low = std::min(open, close) * below;
      bar.volume = bar.volume * exact_exp(random_normal(key, 1)) + 1;
      if (symbol.implied.empty()) continue;
      symbol.implied[i].volatility *= 0.5 + random_uniform(key, 2);
      symbol.implied[i].skew += 0.1 * random_normal(key, 3);
      symbol.implied[i].spread = 0.01 + 0.05 * random_uniform(key, 4);
    }
  }
  return data;
}

}  // namespace tandem
