#include "market/features.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "market/dates.h"
#include "market/option_math.h"
#include "market/technicals.h"

namespace tandem {

namespace {

constexpr double kLeastEstimate = 0.05, kMostEstimate = 3.0;

// Everything that rows are read from, computed once per symbol.
struct SymbolSeries {
  std::span<const Bar> bars;
  std::span<const MarketDay> days;
  Series returns[7];  // over kLags days
  Series close, top20, bottom20, top60, bottom60;
  Series volume, volume5, volume20, volume250, signed_volume;  // logarithms of volume + 1
  Series rsi14, rsi5, atr, cci, mean5, mean10, mean20, mean50, exponential12, exponential26;
  Macd trend;
  Bollinger band;
  Stochastic place;
  DirectionalMovement movement;
  Series realized5, realized10, realized20, realized60, range20, session20, deviation20, implied, implied_top,
      implied_bottom;
};

constexpr size_t kLags[7] = {2, 3, 5, 10, 20, 40, 60};

SymbolSeries series_of(const MarketSymbol& symbol, std::span<const MarketDay> days) {
  SymbolSeries s;
  const std::span<const Bar> bars = symbol.bars;
  s.bars = bars, s.days = days;
  for (size_t i = 0; i < 7; ++i) s.returns[i] = log_returns(bars, kLags[i]);
  s.close = closes_of(bars);
  Series high, low;
  for (const Bar& bar : bars) {
    high.push_back(bar.high), low.push_back(bar.low);
    s.volume.push_back(exact_log(bar.volume + 1));
  }
  for (const MarketDay& day : days) s.implied.push_back(day.volatility);
  s.top20 = moving_max(high, 20), s.bottom20 = moving_min(low, 20);
  s.top60 = moving_max(high, 60), s.bottom60 = moving_min(low, 60);
  s.volume5 = moving_mean(s.volume, 5), s.volume20 = moving_mean(s.volume, 20);
  s.volume250 = moving_mean(s.volume, 250);
  s.rsi14 = relative_strength(bars, 14), s.rsi5 = relative_strength(bars, 5);
  s.atr = average_true_range(bars, 14), s.cci = commodity_channel(bars, 20);
  s.mean5 = moving_mean(s.close, 5), s.mean10 = moving_mean(s.close, 10);
  s.mean20 = moving_mean(s.close, 20), s.mean50 = moving_mean(s.close, 50);
  s.exponential12 = exponential_mean(s.close, 12), s.exponential26 = exponential_mean(s.close, 26);
  s.trend = macd(bars, 12, 26, 9), s.band = bollinger(bars, 20), s.place = stochastic(bars, 14);
  s.movement = directional_movement(bars, 14);
  s.realized5 = realized_volatility(bars, 5), s.realized10 = realized_volatility(bars, 10);
  s.realized20 = realized_volatility(bars, 20), s.realized60 = realized_volatility(bars, 60);
  s.range20 = range_volatility(bars, 20);
  s.session20 = moving_mean(day_variance(bars), 20);
  s.deviation20 = moving_deviation(log_returns(bars, 1), 20);
  s.implied_top = moving_max(s.implied, 60), s.implied_bottom = moving_min(s.implied, 60);
  return s;
}

// put(name, value) and put(name, number, value): a row's features in their order.
template <class Put>
void put_prices(const SymbolSeries& s, size_t t, Put& put) {
  const Bar& bar = s.bars[t];
  const double before = s.bars[t - 1].close;
  put("night", exact_log(bar.open / before));
  put("high", exact_log(bar.high / before));
  put("low", exact_log(bar.low / before));
  put("day", exact_log(bar.close / before));
  for (size_t i = 0; i < 7; ++i) put("return", static_cast<int>(kLags[i]), s.returns[i][t]);
  put("place in day", bar.high > bar.low ? (bar.close - bar.low) / (bar.high - bar.low) : 0.5);
  put("below high 20", exact_log(bar.close / s.top20[t]));
  put("above low 20", exact_log(bar.close / s.bottom20[t]));
  put("below high 60", exact_log(bar.close / s.top60[t]));
  put("above low 60", exact_log(bar.close / s.bottom60[t]));
}

template <class Put>
void put_volume(const SymbolSeries& s, size_t t, Put& put) {
  const double volume = s.volume[t];
  double up = 0, all = 0;
  for (size_t i = t - 19; i <= t; ++i) {
    const double change = s.close[i] - s.close[i - 1];
    up += change > 0 ? s.bars[i].volume : change < 0 ? -s.bars[i].volume : 0;
    all += s.bars[i].volume;
  }
  put("volume to mean 20", volume - s.volume20[t]);
  put("volume to mean 250", volume - s.volume250[t]);
  put("volume to day before", volume - s.volume[t - 1]);
  put("volume of 5 to 20", s.volume5[t] - s.volume20[t]);
  put("volume with sign", (s.close[t] > s.close[t - 1] ? 1 : -1) * (volume - s.volume20[t]));
  put("volume on rises 20", all > 0 ? up / all : 0);
}

template <class Put>
void put_technicals(const SymbolSeries& s, size_t t, Put& put) {
  const double close = s.close[t];
  put("rsi 14", s.rsi14[t] / 100);
  put("rsi 5", s.rsi5[t] / 100);
  put("macd line", s.trend.line[t] / close);
  put("macd signal", s.trend.signal[t] / close);
  put("macd histogram", (s.trend.line[t] - s.trend.signal[t]) / close);
  put("bollinger position", s.band.position[t]);
  put("bollinger width", s.band.width[t]);
  put("atr 14", s.atr[t] / close);
  put("stochastic k", s.place.k[t] / 100);
  put("stochastic d", s.place.d[t] / 100);
  put("mean 5", exact_log(close / s.mean5[t]));
  put("mean 10", exact_log(close / s.mean10[t]));
  put("mean 20", exact_log(close / s.mean20[t]));
  put("mean 50", exact_log(close / s.mean50[t]));
  put("exponential mean 12", exact_log(close / s.exponential12[t]));
  put("exponential mean 26", exact_log(close / s.exponential26[t]));
  put("plus movement", s.movement.plus[t] / 100);
  put("minus movement", s.movement.minus[t] / 100);
  put("adx 14", s.movement.index[t] / 100);
  put("cci 20", s.cci[t] / 100);
}

template <class Put>
void put_realized(const SymbolSeries& s, size_t t, Put& put) {
  const Bar* const bars = s.bars.data();
  double most = 0, fall = 0, cubes = 0, mean = 0;
  for (size_t i = t - 19; i <= t; ++i) mean += exact_log(bars[i].close / bars[i - 1].close) / 20;
  for (size_t i = t - 19; i <= t; ++i) {
    const double x = exact_log(bars[i].close / bars[i - 1].close), from = x - mean;
    most = std::max(most, std::fabs(x));
    if (x < 0) fall += x * x / 20;
    cubes += from * from * from / 20;
  }
  const double deviation = s.deviation20[t];
  put("realized 5", s.realized5[t]);
  put("realized 10", s.realized10[t]);
  put("realized 20", s.realized20[t]);
  put("realized 60", s.realized60[t]);
  put("from ranges 20", s.range20[t]);
  put("from sessions 20", std::sqrt(252 * s.session20[t]));
  put("realized 5 to 60", exact_log((s.realized5[t] + 0.01) / (s.realized60[t] + 0.01)));
  put("falls 20", std::sqrt(252 * fall));
  put("largest move 20", most);
  put("skewness 20", deviation > 1e-9 ? cubes / (deviation * deviation * deviation) : 0);
}

template <class Put>
void put_implied(const SymbolSeries& s, size_t t, Put& put) {
  const MarketDay& day = s.days[t];
  const double width = s.implied_top[t] - s.implied_bottom[t];
  put("implied", day.volatility);
  put("implied to day before", exact_log(day.volatility / s.implied[t - 1]));
  put("implied to 5 days before", exact_log(day.volatility / s.implied[t - 5]));
  put("implied less realized 20", day.volatility - s.realized20[t]);
  put("implied rank 60", width > 0 ? (day.volatility - s.implied_bottom[t]) / width : 0.5);
  put("skew", day.skew);
  put("spread", day.spread);
}

template <class Put>
void put_chain(const SymbolSeries& s, size_t t, const FeatureOptions& options, Put& put) {
  const MarketDay& day = s.days[t];
  const double years = options.expiry_days / 252.0;
  const auto value = [&](OptionType type, double ratio) {  // of a spot of 1
    const double volatility = smile_volatility(day.volatility, day.skew, 1.0, ratio, years);
    return option_value(type, 1.0, ratio, years, volatility, options.rate);
  };
  for (const OptionType type : {OptionType::kCall, OptionType::kPut})
    for (int i = 0; i < 10; ++i) {
      const bool call = type == OptionType::kCall;
      const OptionValue v = value(type, call ? 1 + 0.01 * i : 1 - 0.01 * i);
      put(call ? "call price" : "put price", i, v.price);
      put(call ? "call delta" : "put delta", i, v.delta);
    }
  const OptionValue middle = value(OptionType::kCall, 1.0);
  put("gamma", middle.gamma);
  put("vega", middle.vega);
  put("theta", middle.theta);
}

template <class Put>
void put_calendar(const SymbolSeries& s, size_t t, Put& put) {
  const int today = weekday(s.bars[t].date);
  const char* const names[] = {"monday", "tuesday", "wednesday", "thursday", "friday"};
  for (int i = 0; i < 5; ++i) put(names[i], today == i ? 1.0 : 0.0);
  put("days since last bar", static_cast<double>(day_number(s.bars[t].date) - day_number(s.bars[t - 1].date)));
}

template <class Put>
void put_row(const SymbolSeries& s, size_t t, const FeatureOptions& options, Put& put) {
  put_prices(s, t, put);
  put_volume(s, t, put);
  put_technicals(s, t, put);
  put_realized(s, t, put);
  put_implied(s, t, put);
  put_chain(s, t, options, put);
  put_calendar(s, t, put);
}

struct PutValues {
  std::vector<double>& out;
  void operator()(const char* /*name*/, double value) { out.push_back(value); }
  void operator()(const char* /*name*/, int /*number*/, double value) { out.push_back(value); }
};
struct PutNames {
  std::vector<std::string>& out;
  void operator()(const char* name, double /*value*/) { out.emplace_back(name); }
  void operator()(const char* name, int number, double /*value*/) { out.push_back(fmt::format("{} {}", name, number)); }
};

std::vector<std::string> names_of_row() {
  MarketSymbol symbol;
  for (int32_t i = 0; i <= kHistoryDays; ++i) symbol.bars.push_back({1, 1, 1, 1, 1, date_of_day(20000 + i), 0});
  const std::vector<MarketDay> days = market_days(symbol, 0, {});
  std::vector<std::string> names;
  PutNames put{names};
  put_row(series_of(symbol, days), kHistoryDays, {}, put);
  return names;
}

}  // namespace

std::vector<int> ages_of_quotes(const MarketSymbol& symbol) {
  std::vector<int> ages;
  int age = kStaleDays;
  for (size_t i = 0; i < symbol.bars.size(); ++i) {
    const bool quoted = !symbol.implied.empty() && symbol.implied[i].volatility > 0;
    age = quoted ? 0 : std::min(age, kStaleDays) + 1;
    ages.push_back(age);
  }
  return ages;
}

std::vector<MarketDay> market_days(const MarketSymbol& symbol, int32_t number, const FeatureOptions& options) {
  if (!symbol.implied.empty() && symbol.implied.size() != symbol.bars.size())
    throw std::logic_error("implied days are not one per bar");
  const Series estimate = estimated_volatility(symbol.bars);
  const std::vector<int> ages = ages_of_quotes(symbol);
  std::vector<MarketDay> days;
  ImpliedDay known;
  for (size_t i = 0; i < symbol.bars.size(); ++i) {
    const Bar& bar = symbol.bars[i];
    if (ages[i] == 0) known = symbol.implied[i];
    MarketDay day{bar.open, bar.high, bar.low, bar.close, 0, options.skew, 0, bar.date, number};
    if (ages[i] <= kStaleDays)
      day.volatility = known.volatility, day.skew = known.skew, day.spread = known.spread;
    else
      day.volatility = std::clamp(options.premium * estimate[i], kLeastEstimate, kMostEstimate);
    days.push_back(day);
  }
  return days;
}

void append_features(const MarketSymbol& symbol, std::span<const MarketDay> days, const FeatureOptions& options,
                     std::vector<double>& out) {
  const SymbolSeries series = series_of(symbol, days);
  out.reserve(out.size() + days.size() * kMarketFeatures);
  PutValues put{out};
  for (size_t t = 0; t < days.size(); ++t) {
    if (t < static_cast<size_t>(kHistoryDays))
      out.resize(out.size() + kMarketFeatures, 0.0);
    else
      put_row(series, t, options, put);
  }
}

const std::vector<std::string>& feature_names() {
  static const std::vector<std::string> names = names_of_row();
  return names;
}

}  // namespace tandem
