#include "market/forecast_targets.h"

#include <algorithm>
#include <cmath>

#include "market/option_math.h"
#include "market/options_rules.h"

namespace tandem {
namespace {

constexpr double kRangeOfWalk = 1.6;
constexpr size_t kVolumeDays = 20;

float within_five(double x) { return static_cast<float>(std::clamp(x, -5.0, 5.0)); }

double mean_volume(const std::vector<Bar>& bars, size_t day) {
  const size_t first = day + 1 >= kVolumeDays ? day + 1 - kVolumeDays : 0;
  double sum = 0;
  for (size_t i = first; i <= day; ++i) sum += bars[i].volume;
  return sum / static_cast<double>(day + 1 - first);
}

}  // namespace

void append_forecast_targets(const MarketSymbol& symbol, std::span<const MarketDay> days, std::vector<float>& out) {
  for (size_t day = 0; day < days.size(); ++day) {
    if (day + 1 == days.size()) {
      out.insert(out.end(), kForecasts, 0.0F);
      break;
    }
    const Bar& next = symbol.bars[day + 1];
    const double deviation = days[day].volatility / std::sqrt(static_cast<double>(kTradingDaysOfYear));
    const double mean = mean_volume(symbol.bars, day), volume = next.volume;
    out.push_back(within_five(exact_log(next.close / days[day].close) / deviation));
    out.push_back(within_five(exact_log(next.high / next.low) / deviation - kRangeOfWalk));
    out.push_back(mean > 0 && volume > 0 ? within_five(exact_log(volume / mean)) : 0.0F);
  }
}

}  // namespace tandem
