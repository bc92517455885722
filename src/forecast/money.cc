#include "forecast/money.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

namespace tandem {
namespace {

constexpr double kSupplies[] = {300, 450, 550, 650, 750, 850, 1000, 1200, 1300, 1600, 2000, 2200, 2400, 3000};
constexpr double kHeadroom = 1.2;

double supply_for(double watts) {
  for (const double size : kSupplies)
    if (size >= watts) return size;
  const double largest = kSupplies[std::size(kSupplies) - 1];  // several of them
  double all = largest;
  while (all < watts) all += largest;
  return all;
}

}  // namespace

PowerForecast power_of(const std::vector<double>& gpus_w, double measured_w, double busy_cores) {
  PowerForecast power;
  power.gpus_peak_w = std::accumulate(gpus_w.begin(), gpus_w.end(), 0.0);
  power.peak_w = power.gpus_peak_w + kProcessorWatts + kOtherWatts;
  const double processor = gpus_w.empty() ? kProcessorWatts * std::clamp(busy_cores, 0.0, 1.0) : kProcessorWatts;
  power.typical_w = (measured_w > 0 ? measured_w : kTypicalShare * power.gpus_peak_w) + processor + kOtherWatts;
  power.psu_w = supply_for(kHeadroom * power.peak_w);
  power.psu_least_w = supply_for(power.peak_w);
  power.btu_per_hour = kBtuPerWattHour * power.typical_w;
  power.peak_btu_per_hour = kBtuPerWattHour * power.peak_w;
  return power;
}

RunningCost running_cost(double watts, double price_kwh) {
  const double hour = watts / 1000 * price_kwh;
  return {.per_hour = hour,
          .month = hour * 24 * 30,
          .year = hour * 24 * 365,
          .cooling_month = hour * 24 * 30 * kCoolingShare};
}

double energy_kwh(double watts, double seconds) { return watts * seconds / 3.6e6; }

std::optional<double> break_even_hours(double buy, double rent_per_hour, double electricity_per_hour) {
  if (rent_per_hour <= electricity_per_hour) return std::nullopt;
  return buy / (rent_per_hour - electricity_per_hour);
}

std::string GuideFigures::words() const {
  return fmt::format("{:.1f}x", speedup) + (minutes ? fmt::format(", {:.1f} min", *minutes) : "") +
         (dollars ? fmt::format(", ${:.2f}", *dollars) : "");
}

std::optional<GuideFigures> guide_figures(std::string_view recipe, int gpus) {
  const bool options = recipe == "options";
  switch (gpus) {
    case 1:
      return options ? GuideFigures{1, 10.2, .17} : GuideFigures{1};
    case 2:
      return options ? GuideFigures{1.9, 5.4, .18} : GuideFigures{1.8};
    case 3:
      if (options) return std::nullopt;
      return GuideFigures{2.6};
    case 4:
      return options ? GuideFigures{3.6, 2.8, .19} : GuideFigures{3.6};
    case 8:
      return options ? GuideFigures{6.8, 1.5, .20} : GuideFigures{6.8};
    default:
      return std::nullopt;
  }
}

}  // namespace tandem
