// forecast/money.h -- power, heat and money of a machine that trains, counted as the guides count them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// The guides' own: 150 W for the processor, 50 W for the rest; of what GPUs may draw, training takes 62 % (their 640 W
// of GPUs and 840 W in all are "about 600 W typical").
inline constexpr double kProcessorWatts = 150, kOtherWatts = 50, kTypicalShare = .62;
inline constexpr double kBtuPerWattHour = 3.412;
inline constexpr double kCoolingShare = .35;  // of the electricity bill: their $15 of cooling for $43

struct PowerForecast {
  double gpus_peak_w = 0;
  double peak_w = 0, typical_w = 0;
  double psu_w = 0;        // a size that is sold, a fifth above the peak
  double psu_least_w = 0;  // the guides' rule: the next size above the peak
  double btu_per_hour = 0, peak_btu_per_hour = 0;
};

// `gpus_w`: power limits of the GPUs used. `measured_w`: what they were seen to draw together, 0 if nobody looked.
// `busy_cores`: share of the processor that workers on the CPU keep busy; with GPUs it feeds them.
PowerForecast power_of(const std::vector<double>& gpus_w, double measured_w, double busy_cores);

struct RunningCost {
  double per_hour = 0, month = 0, year = 0;  // electricity, 24 hours a day; a month has 30 days
  double cooling_month = 0;
};
RunningCost running_cost(double watts, double price_kwh);

double energy_kwh(double watts, double seconds);

// Hours of training until buying is cheaper than renting; nothing where renting never costs more.
std::optional<double> break_even_hours(double buy, double rent_per_hour, double electricity_per_hour);

// What the guide of a recipe says of n GPUs; minutes and dollars where it has them: the options trader's, of 5,000
// episodes on H100s. Recipes without a table of their own take the web agents' (1.8x on 2, 2.6x on 3) and for 4 and 8
// GPUs the options trader's. Nothing for other counts.
struct GuideFigures {
  double speedup = 1;
  std::optional<double> minutes = std::nullopt, dollars = std::nullopt;
  std::string words() const;  // "1.9x, 5.4 min, $0.18"
};
std::optional<GuideFigures> guide_figures(std::string_view recipe, int gpus);

}  // namespace tandem
