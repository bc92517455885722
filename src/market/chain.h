// market/chain.h -- quotes of options, and what a day's quotes say about volatility, skew and spread.
//
// DIR/SYM_options.csv (or .parquet), one line per option and day:
//   date           of the quote, at the close of the underlying
//   expiry         last trading day of the option, a date
//   strike         in the units of the underlying's prices (after the same splits)
//   type           call or put; also c, p
//   bid, ask       per share; 0 is no quote
// Lines may be in any order, other columns are ignored. A day's implied volatility comes from the mids of options out
// of the money of the expiry nearest to 30 days (7 to 90): a line through them in ln(strike / spot) / sqrt(years),
// whose value at 0 is the volatility at the money and whose slope is the skew (option_math.h, smile_volatility()).
// Strikes must be in the units of the closes. A close that was lowered by dividends since, beside raw strikes, would
// give a wrong volatility without any other sign: so quotes are asked what the price is, by put-call parity.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "market/bars.h"
#include "market/csv_rows.h"
#include "market/data_findings.h"
#include "market/option_math.h"

namespace tandem {

struct ChainQuote {
  int32_t date = 0, expiry = 0;
  OptionType type = OptionType::kCall;
  double strike = 0, bid = 0, ask = 0;
  int64_t line = 0;
};

// Of a day; volatility 0: the quotes of this day say nothing.
struct ImpliedDay {
  int32_t date = 0;
  double volatility = 0;  // at the money, of about a month
  double skew = 0;
  double spread = 0;  // median of (ask - bid) / mid near the money; 0: not known
};

std::span<const MarketColumn> chain_columns();

// Every line that can be read becomes a quote; the others become findings: also a strike or price below 0, an expiry
// before its date, a bid above the ask (a warning, left out).
std::vector<ChainQuote> read_chain(std::string_view text, const std::string& file, DataFindings& findings);

// One entry per bar. Sorts the quotes. Days of quotes without a bar, and bars whose quotes give no volatility, are
// counted in a warning. An error: no day gives a volatility, or on most days the price by the options is not the close.
std::vector<ImpliedDay> implied_days(std::vector<ChainQuote>& quotes, const SymbolBars& bars, const std::string& file,
                                     double rate, DataFindings& findings);

// What one day's quotes say at this spot.
ImpliedDay implied_day(std::span<const ChainQuote> quotes, int32_t date, double spot, double rate);

// What one day's quotes say of the spot itself: by put-call parity, between bid and ask, of the strike whose call and
// put cost most nearly the same; without such a pair, between the puts and calls that are quoted. Nothing where the
// quotes of the expiry nearest to a month say neither.
struct SpotRange {
  double low = 0, high = 0;
  // Share by which `spot` lies outside; 0: it is inside.
  double away(double spot) const { return spot < low ? low / spot - 1 : spot > high ? high / spot - 1 : 0; }
};
std::optional<SpotRange> spot_of_quotes(std::span<const ChainQuote> quotes, int32_t date, double rate);

}  // namespace tandem
