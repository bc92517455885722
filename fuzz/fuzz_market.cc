// fuzz/fuzz_market.cc -- market/bars.h and market/chain.h: any bytes are bars, quotes or findings; what is read is
// sound.
#include <cmath>
#include <cstdlib>

#include "market/bars.h"
#include "market/chain.h"

namespace {

void expect(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  DataFindings findings;
  const SymbolBars bars = read_bars(text, "AAA", "AAA.csv", findings);
  check_bars(bars, {.least_bars = 5, .today = 20261118}, findings);
  if (findings.errors() == 0)
    for (size_t i = 0; i < bars.bars.size(); ++i) {
      const Bar& bar = bars.bars[i];
      expect(bar.low > 0 && bar.low <= bar.high && std::isfinite(bar.high) && bar.volume >= 0);
      expect(i == 0 || bars.bars[i - 1].date < bar.date);
    }
  DataFindings of_chain;
  std::vector<ChainQuote> quotes = read_chain(text, "AAA_options.csv", of_chain);
  for (const ChainQuote& quote : quotes) expect(quote.strike > 0 && quote.expiry >= quote.date);
  for (const ImpliedDay& day : implied_days(quotes, bars, "AAA_options.csv", 0.03, of_chain))
    expect(day.volatility >= 0 && std::isfinite(day.volatility) && std::isfinite(day.skew) && day.spread >= 0);
  expect(findings.render().size() < 10'000'000);
  return 0;
}
