#include "market/chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "base/printable.h"
#include "market/dates.h"

namespace tandem {

namespace {

const MarketColumn kChainColumns[] = {{"date"}, {"expiry"}, {"strike"}, {"type"}, {"bid"}, {"ask"}};
constexpr int64_t kNearestExpiry = 7, kWantedExpiry = 30, kFarthestExpiry = 90;  // calendar days
constexpr double kFarthestStrike = 0.5;                                          // of ln(strike / spot) / sqrt(years)
constexpr int kLeastQuotes = 4;
// A dividend of a month and the spread of a wide market are less than the first. Between them lie the rates of stocks
// that are hard to borrow, and closes that were adjusted for dividends; beyond the second the units are others.
constexpr double kFarFromClose = 0.02, kOfOtherUnits = 0.1;
constexpr int64_t kLeastCompared = 20;  // days, for an error

std::string chain_field(std::string_view field) {
  return field.empty() ? "nothing" : fmt::format("'{}'", printable(field.substr(0, 40)));
}

std::optional<OptionType> parse_option_type(std::string_view text) {
  std::string lower(text.substr(0, 8));
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  if (lower == "call" || lower == "c") return OptionType::kCall;
  if (lower == "put" || lower == "p") return OptionType::kPut;
  return std::nullopt;
}

// Empty, or what is wrong with it and its kind.
std::pair<std::string, std::string> parse_quote(std::span<const std::string_view> fields, ChainQuote& quote) {
  const auto date = parse_date(fields[0]), expiry = parse_date(fields[1]);
  if (!date || !expiry)
    return {"date", fmt::format("{} is {}, expected YYYY-MM-DD or YYYYMMDD", date ? "expiry" : "date",
                                chain_field(fields[date ? 1 : 0]))};
  const auto type = parse_option_type(fields[3]);
  if (!type) return {"type", fmt::format("type is {}, expected call or put", chain_field(fields[3]))};
  const std::pair<size_t, double*> numbers[] = {{2, &quote.strike}, {4, &quote.bid}, {5, &quote.ask}};
  for (const auto& [column, to] : numbers) {
    const auto number = parse_number(fields[column]);
    if (!number)
      return {"number",
              fmt::format("{} is {}, which is no number", kChainColumns[column].name, chain_field(fields[column]))};
    if (!std::isfinite(*number)) return {"nan", fmt::format("{} is {}", kChainColumns[column].name, *number)};
    *to = *number;
  }
  quote.date = *date, quote.expiry = *expiry, quote.type = *type;
  if (quote.strike < kLowestPrice || quote.strike > kHighestPrice)
    return {"price", fmt::format("strike is {:g}: expected {:g} to {:g}", quote.strike, kLowestPrice, kHighestPrice)};
  if (quote.bid < 0 || quote.ask < 0)
    return {"price", fmt::format("bid {} and ask {} are never below 0", quote.bid, quote.ask)};
  if (quote.expiry < quote.date)
    return {"expiry", fmt::format("expiry {} is before the date {}", date_text(quote.expiry), date_text(quote.date))};
  return {};
}

double median_of(std::vector<double>& values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

// The expiry nearest to a month; of two as near, the later one. 0: there is none.
int32_t month_expiry(std::span<const ChainQuote> quotes, int32_t date) {
  int32_t best = 0;
  int64_t nearest = 0;
  for (const ChainQuote& quote : quotes) {
    const int64_t days = day_number(quote.expiry) - day_number(date);
    if (days < kNearestExpiry || days > kFarthestExpiry) continue;
    const int64_t away = std::abs(days - kWantedExpiry);
    if (best == 0 || away < nearest || (away == nearest && quote.expiry > best)) best = quote.expiry, nearest = away;
  }
  return best;
}

// Of one day, of quotes that are sorted by their dates.
std::span<const ChainQuote> quotes_of(std::span<const ChainQuote> quotes, int32_t date) {
  const auto [first, last] = std::equal_range(quotes.begin(), quotes.end(), ChainQuote{.date = date},
                                              [](const ChainQuote& a, const ChainQuote& b) { return a.date < b.date; });
  return {first, last};
}

}  // namespace

std::span<const MarketColumn> chain_columns() { return kChainColumns; }

std::vector<ChainQuote> read_chain(std::string_view text, const std::string& file, DataFindings& findings) {
  std::vector<ChainQuote> quotes;
  read_csv(text, file, kChainColumns, findings, [&](int64_t line, std::span<const std::string_view> fields) {
    ChainQuote quote;
    quote.line = line;
    if (const auto [kind, why] = parse_quote(fields, quote); !kind.empty())
      findings.error(kind, file, line, why);
    else if (quote.bid > quote.ask)
      findings.warning("crossed", file, line, fmt::format("bid {} is above ask {}: left out", quote.bid, quote.ask));
    else
      quotes.push_back(quote);
  });
  return quotes;
}

ImpliedDay implied_day(std::span<const ChainQuote> quotes, int32_t date, double spot, double rate) {
  ImpliedDay out{date};
  const int32_t expiry = month_expiry(quotes, date);
  if (expiry == 0) return out;
  const double years = static_cast<double>(day_number(expiry) - day_number(date)) / 365.0;
  std::vector<double> spreads;
  double n = 0, sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;
  bool below = false, above = false;
  for (const ChainQuote& quote : quotes) {
    if (quote.expiry != expiry || quote.bid <= 0 || quote.ask <= 0) continue;
    const bool outside = quote.type == OptionType::kCall ? quote.strike >= spot : quote.strike <= spot;
    const double x = exact_log(quote.strike / spot) / std::sqrt(years), mid = 0.5 * (quote.bid + quote.ask);
    if (!outside || std::fabs(x) > kFarthestStrike) continue;
    const double y = implied_volatility(quote.type, mid, spot, quote.strike, years, rate);
    if (y < 0) continue;
    (x < 0 ? below : above) = true;
    spreads.push_back((quote.ask - quote.bid) / mid);
    n += 1, sum_x += x, sum_y += y, sum_xx += x * x, sum_xy += x * y;
  }
  const double width = n * sum_xx - sum_x * sum_x;
  if (n < kLeastQuotes || !below || !above || !(width > 0)) return out;  // a line from one side only would guess
  out.skew = (n * sum_xy - sum_x * sum_y) / width;
  out.volatility = (sum_y - out.skew * sum_x) / n;
  out.spread = median_of(spreads);
  if (!(out.volatility > 0.01 && out.volatility < 5)) return ImpliedDay{date};
  return out;
}

std::optional<SpotRange> spot_of_quotes(std::span<const ChainQuote> quotes, int32_t date, double rate) {
  const int32_t expiry = month_expiry(quotes, date);
  if (expiry == 0) return std::nullopt;
  const double years = static_cast<double>(day_number(expiry) - day_number(date)) / 365.0;
  std::map<double, std::pair<const ChainQuote*, const ChainQuote*>> strikes;  // its call and put
  // Without arbitrage a put is worth at least the discounted strike less the spot, a call the spot less the strike.
  const double discount = exact_exp(-rate * years);
  double low = 0, high = 0;  // by the puts and by the calls
  for (const ChainQuote& quote : quotes) {
    if (quote.expiry != expiry || quote.bid <= 0 || quote.ask <= 0) continue;
    const bool call = quote.type == OptionType::kCall;
    auto& pair = strikes[quote.strike];
    (call ? pair.first : pair.second) = &quote;
    const double bound = call ? quote.strike + quote.ask : quote.strike * discount - quote.ask;
    if (call && (high == 0 || bound < high)) high = bound;
    if (!call) low = std::max(low, bound);
  }
  std::optional<SpotRange> found;
  double least = 0;
  for (const auto& [strike, pair] : strikes) {
    const auto [call, put] = pair;
    if (!call || !put) continue;
    const double apart = std::fabs(call->bid + call->ask - put->bid - put->ask);
    if (found && apart >= least) continue;
    const double discounted = strike * discount;
    found = SpotRange{discounted + call->bid - put->ask, discounted + call->ask - put->bid};
    least = apart;
  }
  if (!found && low > 0 && low <= high) found = SpotRange{low, high};
  return found;
}

namespace {

// Strikes of other units than the closes are found by what the options say the price is.
void compare_with_closes(std::span<const ChainQuote> quotes, const SymbolBars& bars, const std::string& file,
                         double rate, DataFindings& findings) {
  struct Compared {
    int32_t date = 0;
    double close = 0;
    SpotRange found;
    double away() const { return found.away(close); }
  };
  std::vector<Compared> days;
  for (const Bar& bar : bars.bars) {
    if (!(bar.close > 0)) continue;
    if (const auto found = spot_of_quotes(quotes_of(quotes, bar.date), bar.date, rate))
      days.push_back({bar.date, bar.close, *found});
  }
  const auto all = static_cast<int64_t>(days.size());
  const auto off = [&](double limit) {
    return std::ranges::count_if(days, [&](const Compared& day) { return std::fabs(day.away()) > limit; });
  };
  const bool other_units = all >= kLeastCompared && 2 * off(kOfOtherUnits) > all;
  const double limit = other_units ? kOfOtherUnits : kFarFromClose;
  const int64_t far = off(limit);
  if (far == 0) return;
  std::vector<double> shares;
  const Compared* first = nullptr;
  for (const Compared& day : days) {
    if (std::fabs(day.away()) <= limit) continue;
    if (!first) first = &day;
    shares.push_back(day.away());
  }
  std::string what = fmt::format(
      "by the options the price is not the close of {}: on {} of {} days more than {:g} % off, half of them by {:+.1f} "
      "% or more; on {} {:.6g} to {:.6g}, and the close is {:.6g}",
      bars.file, far, all, 100 * limit, 100 * median_of(shares), date_text(first->date), first->found.low,
      first->found.high, first->close);
  if (2 * far > all)
    what +=
        ". Closes that were adjusted for dividends, or for splits that strikes were not, give a wrong volatility: give "
        "closes and strikes after the same splits, and neither after dividends";
  findings.add(other_units ? FindingLevel::kError : FindingLevel::kWarning, "strikes", file, 0, what);
}

}  // namespace

std::vector<ImpliedDay> implied_days(std::vector<ChainQuote>& quotes, const SymbolBars& bars, const std::string& file,
                                     double rate, DataFindings& findings) {
  std::stable_sort(quotes.begin(), quotes.end(),
                   [](const ChainQuote& a, const ChainQuote& b) { return a.date < b.date; });
  std::vector<ImpliedDay> out;
  int64_t without = 0;
  size_t used = 0;
  for (const Bar& bar : bars.bars) {
    const std::span<const ChainQuote> today = quotes_of(quotes, bar.date);
    used += today.size();
    out.push_back(bar.close > 0 ? implied_day(today, bar.date, bar.close, rate) : ImpliedDay{bar.date});
    if (out.back().volatility == 0) ++without;
  }
  if (used < quotes.size())
    findings.warning("date", file, 0,
                     fmt::format("{} of {} quotes are of days without a bar", quotes.size() - used, quotes.size()));
  const int64_t errors = findings.errors();
  compare_with_closes(quotes, bars, file, rate, findings);
  const std::string takes =
      fmt::format("(it takes {} quotes out of the money, on both sides, 7 to 90 days to expiry)", kLeastQuotes);
  const auto all = static_cast<int64_t>(out.size());
  if (without == all && all > 0 && findings.errors() == errors)
    findings.error("chain", file, 0,
                   fmt::format("none of its {} quotes gives a volatility on any of the {} days of {} {}: correct the "
                               "file, or take it away so that volatility is estimated from returns",
                               quotes.size(), all, bars.file, takes));
  else if (without > 0 && without < all)
    findings.warning(
        "chain", file, 0,
        fmt::format("the quotes of {} of {} days give no volatility {}: it is estimated from returns there", without,
                    all, takes));
  return out;
}

}  // namespace tandem
