#include "market/folds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/errors.h"

namespace tandem {
namespace {

// The rows of one symbol.
struct SymbolRows {
  std::string name;
  int32_t first = 0, last = 0;
  int32_t count() const { return last - first + 1; }
};

std::vector<SymbolRows> rows_by_symbol(const MarketView& market, const std::vector<std::string>& names) {
  std::vector<SymbolRows> out;
  for (int32_t row = 0; row < market.rows; ++row) {
    const MarketDay& day = market.days[row];
    const bool begins = row == 0 || day.symbol != market.days[row - 1].symbol;
    const auto number = static_cast<size_t>(day.symbol);
    const std::string name = number < names.size() ? names[number] : fmt::format("symbol {}", number);
    if (begins)
      out.push_back({name, row, row});
    else if (day.date <= market.days[row - 1].date)
      throw ConfigError(fmt::format("the days of {} are not in order", name),
                        fmt::format("{} stands after {}", day.date, market.days[row - 1].date),
                        "sort its file by date and remove double days");
    out.back().last = row;
  }
  return out;
}

std::vector<int32_t> calendar_of(const MarketView& market) {
  std::vector<int32_t> dates;
  dates.reserve(static_cast<size_t>(market.rows));
  for (int64_t row = 0; row < market.rows; ++row) dates.push_back(market.days[row].date);
  std::sort(dates.begin(), dates.end());
  dates.erase(std::unique(dates.begin(), dates.end()), dates.end());
  return dates;
}

void check_plan(const FoldPlan& plan) {
  const auto refuse = [](const std::string& what, const char* why, const char* todo) {
    throw ConfigError(what, why, todo);
  };
  if (plan.folds < 1 || plan.folds > 1000)
    refuse(fmt::format("{} walk-forward folds", plan.folds), "there are 1 to 1000 of them", "give another number");
  if (!(plan.test_share > 0 && plan.test_share < 1))
    refuse(fmt::format("test_share {} is not between 0 and 1", plan.test_share),
           "it is the part of the days that agents are judged by", "give .2 to .5");
  if (!(plan.validation_share > 0 && plan.validation_share < 1))
    refuse(fmt::format("validation_share {} is not between 0 and 1", plan.validation_share),
           "it is the part of the days before a test that chooses the best weights", "give .1 to .3");
  if (plan.purge_days < 0 || plan.embargo_days < 0 || plan.warm_up_days < 0 || plan.least_train_days < 2 ||
      plan.least_days < 2)
    refuse("the days of a walk-forward fold are out of range",
           "purge, embargo and warm-up are 0 or more, the least lengths 2 or more", "give other numbers");
}

// The first row of a symbol on or after a date; its last + 1 where there is none.
int32_t row_at(const MarketView& market, const SymbolRows& symbol, int32_t date) {
  const MarketDay* const begin = market.days + symbol.first;
  const MarketDay* const end = market.days + symbol.last + 1;
  return static_cast<int32_t>(
      std::lower_bound(begin, end, date, [](const MarketDay& day, int32_t d) { return day.date < d; }) - market.days);
}

// Where the parts of a fold begin and end, as places in the calendar; ends included.
struct FoldPlaces {
  int64_t train_last, validation_first, validation_last, test_first, test_last;
};

std::vector<FoldPlaces> places_of(const std::vector<int32_t>& calendar, const FoldPlan& plan) {
  const auto days = static_cast<int64_t>(calendar.size());
  const int64_t gap = plan.purge_days + plan.embargo_days;
  const auto tested = static_cast<int64_t>(std::floor(plan.test_share * static_cast<double>(days)));
  const int64_t first = days - 1 - tested;  // the first decision; the days after it are judged
  if (tested < int64_t{plan.folds} * (plan.least_days - 1))
    throw ConfigError(fmt::format("{} days are too few for {} test periods", days, plan.folds),
                      fmt::format("{} of them are for tests, and a period needs {}", tested, plan.least_days),
                      "give more history, fewer folds or a larger test_share");
  std::vector<FoldPlaces> out;
  for (int64_t k = 0; k < plan.folds; ++k) {
    if (plan.only > 0 && k + 1 != plan.only) continue;
    FoldPlaces p{.train_last = 0, .validation_first = 0, .validation_last = 0, .test_first = 0, .test_last = 0};
    p.test_first = first + tested * k / plan.folds;
    p.test_last = first + tested * (k + 1) / plan.folds;
    p.validation_last = p.test_first - gap - 1;
    const auto validated = static_cast<int64_t>(std::ceil(plan.validation_share * static_cast<double>(p.test_first)));
    p.validation_first = p.validation_last - validated + 1;
    p.train_last = p.validation_first - gap - 1;
    if (p.train_last < plan.warm_up_days + plan.least_train_days - 1)
      throw ConfigError(
          fmt::format("fold {} of {} has too few days to train on", k + 1, plan.folds),
          fmt::format("its test begins on {}, after {} days; {} go to warm-up, {} to validation and {} to two gaps",
                      calendar[static_cast<size_t>(p.test_first)], p.test_first, plan.warm_up_days, validated, 2 * gap),
          "give more history, fewer folds, a smaller test_share or shorter contracts");
    out.push_back(p);
  }
  return out;
}

struct SymbolParts {
  MarketView::Range train, validation, test;
};

// What a symbol has in a fold, or why it is not in it. Its own days count for gaps too.
std::optional<SymbolParts> parts_of(const MarketView& market, const SymbolRows& symbol, const FoldPlaces& p,
                                    const std::vector<int32_t>& calendar, const FoldPlan& plan, std::string& why) {
  const auto date = [&](int64_t place) { return calendar[static_cast<size_t>(place)]; };
  const int32_t gap = plan.purge_days + plan.embargo_days;
  SymbolParts parts;
  parts.test.first = row_at(market, symbol, date(p.test_first));
  parts.test.last = row_at(market, symbol, date(p.test_last) + 1) - 1;
  const int32_t after_validation = row_at(market, symbol, date(p.validation_last) + 1);
  parts.validation.last = std::min(after_validation, parts.test.first - gap) - 1;
  parts.validation.first = std::max(row_at(market, symbol, date(p.validation_first)), symbol.first + plan.warm_up_days);
  const int32_t after_train = row_at(market, symbol, date(p.train_last) + 1);
  parts.train.last = std::min(after_train, parts.validation.first - gap) - 1;
  parts.train.first = symbol.first + plan.warm_up_days;
  const auto length = [](const MarketView::Range& range) { return std::max(0, range.last - range.first + 1); };
  if (length(parts.train) < plan.least_train_days)
    why = fmt::format("{}: {} days to train on before {}, {} are needed", symbol.name, length(parts.train),
                      date(p.train_last), plan.least_train_days);
  else if (length(parts.validation) < plan.least_days)
    why = fmt::format("{}: {} days from {} to {} to validate on, {} are needed", symbol.name, length(parts.validation),
                      date(p.validation_first), date(p.validation_last), plan.least_days);
  else if (length(parts.test) < plan.least_days)
    why = fmt::format("{}: {} days from {} to {} to test on, {} are needed", symbol.name, length(parts.test),
                      date(p.test_first), date(p.test_last), plan.least_days);
  else
    return parts;
  return std::nullopt;
}

MarketFold fold_at(const MarketView& market, const std::vector<SymbolRows>& symbols, const FoldPlaces& p,
                   const std::vector<int32_t>& calendar, const FoldPlan& plan, std::vector<std::string>& never) {
  const auto date = [&](int64_t place) { return calendar[static_cast<size_t>(place)]; };
  MarketFold fold{.train_last = date(p.train_last),
                  .validation_first = date(p.validation_first),
                  .validation_last = date(p.validation_last),
                  .test_first = date(p.test_first),
                  .test_last = date(p.test_last)};
  for (size_t s = 0; s < symbols.size(); ++s) {
    std::string why;
    const auto parts = parts_of(market, symbols[s], p, calendar, plan, why);
    if (!parts) {
      if (!never[s].empty()) never[s] = why;  // the newest fold's reason: it has the most days
      fold.left_out.push_back(std::move(why));
      continue;
    }
    never[s].clear();
    fold.train.push_back(parts->train);
    fold.validation.push_back(parts->validation);
    fold.test.push_back(parts->test);
  }
  return fold;
}

}  // namespace

std::vector<MarketFold> walk_forward_folds(const MarketView& market, const std::vector<std::string>& names,
                                           const FoldPlan& plan) {
  check_plan(plan);
  if (market.rows == 0)
    throw ConfigError("a market without days cannot be cut into folds", "it has no rows", "give a folder with prices");
  const std::vector<SymbolRows> symbols = rows_by_symbol(market, names);
  const std::vector<int32_t> calendar = calendar_of(market);
  std::vector<MarketFold> folds;
  std::vector<std::string> never(symbols.size(), "not tried");  // why a symbol is in no fold; empty: it is in one
  for (const FoldPlaces& p : places_of(calendar, plan)) {
    folds.push_back(fold_at(market, symbols, p, calendar, plan, never));
    if (folds.back().test.empty())
      throw ConfigError(fmt::format("fold {} of {} has no symbol with enough days",
                                    plan.only > 0 ? size_t(plan.only) : folds.size(), plan.folds),
                        folds.back().left_out.front(), "give symbols with a longer history, or fewer folds");
  }
  for (size_t s = 0; s < symbols.size(); ++s)
    if (!never[s].empty() && plan.only == 0)
      throw ConfigError(
          fmt::format("{} is too short for {}: it has {} days", symbols[s].name, "any fold", symbols[s].count()),
          never[s], fmt::format("give more history of {}, or leave it out", symbols[s].name));
  return folds;
}

}  // namespace tandem
