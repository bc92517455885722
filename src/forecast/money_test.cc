#include "forecast/money.h"

#include <gtest/gtest.h>

#include "base/errors.h"
#include "forecast/prices.h"
#include "hardware/gpu_models.h"

namespace tandem {
namespace {

TEST(Power, OfTheFirstGuidesMachineIsTheGuides) {
  const PowerForecast power = power_of({200, 220, 220}, 0, 0);
  EXPECT_NEAR(power.peak_w, 840, 1e-9);
  EXPECT_NEAR(power.typical_w, 600, 5);
  EXPECT_EQ(power.psu_least_w, 850);
  EXPECT_EQ(power.psu_w, 1200) << "a fifth more than the peak";
  EXPECT_NEAR(power.peak_btu_per_hour, 840 * 3.412, 1);
  EXPECT_NEAR(running_cost(840, .12).month, 73, .6);
  EXPECT_NEAR(running_cost(500, .12).month, 43, .3);
  EXPECT_NEAR(running_cost(500, .12).cooling_month, 15, .3);
}

TEST(Power, WhatWasMeasuredGoesBeforeWhatGpusMayDraw) {
  EXPECT_NEAR(power_of({700}, 120, 0).typical_w, 320, 1e-9);
  EXPECT_NEAR(power_of({}, 0, .5).typical_w, 125, 1e-9) << "half of the cores";
  EXPECT_GE(power_of(std::vector<double>(8, 1000), 0, 0).psu_w, 1.2 * 8200);
}

TEST(GuideFigures, AreTheTableOfTheRecipesOwnGuide) {
  const struct {
    int gpus;
    double speedup, minutes, dollars;
  } table[] = {{1, 1, 10.2, .17}, {2, 1.9, 5.4, .18}, {4, 3.6, 2.8, .19}, {8, 6.8, 1.5, .20}};
  for (const auto& row : table) {
    const auto found = guide_figures("options", row.gpus);
    ASSERT_TRUE(found) << row.gpus;
    EXPECT_EQ(found->speedup, row.speedup);
    EXPECT_EQ(found->minutes, row.minutes);
    EXPECT_EQ(found->dollars, row.dollars);
  }
  EXPECT_FALSE(guide_figures("options", 3)) << "its table has no such row";
  EXPECT_EQ(guide_figures("options", 2)->words(), "1.9x, 5.4 min, $0.18");
  EXPECT_EQ(guide_figures("web-test", 2)->words(), "1.8x");
  EXPECT_EQ(guide_figures("web-test", 2)->speedup, 1.8);
  EXPECT_EQ(guide_figures("web-test", 3)->speedup, 2.6);
  EXPECT_FALSE(guide_figures("web-test", 2)->minutes);
  EXPECT_FALSE(guide_figures("web-test", 5));
}

TEST(BreakEven, IsWhereRentExceedsElectricityOrNever) {
  EXPECT_NEAR(break_even_hours(2000, 3.06, .06).value(), 2000 / 3.0, 1e-9);
  EXPECT_FALSE(break_even_hours(2000, .05, .06));
}

TEST(Prices, TheExamplesAreWholeAndEveryLineNamesItsGuide) {
  const Prices prices = read_prices(example_prices(), "examples");
  EXPECT_EQ(prices.kwh, .12);
  ASSERT_EQ(prices.cloud.size(), 5u);
  EXPECT_EQ(prices.cloud[0].per_hour, 3.06);
  for (const CloudPrice& offer : prices.cloud) EXPECT_FALSE(parse_hardware(offer.hardware).empty()) << offer.name;
  for (const BuyPrice& offer : prices.buy) EXPECT_FALSE(parse_hardware(offer.hardware).empty()) << offer.name;
}

TEST(Prices, BadOnesAreRefusedWithTheirLine) {
  for (const char* bad :
       {"[cloud.x]\nhardware = \"H100\"\nper_hour = \"3\"\n", "[cloud.x]\nper_hour = 3\n", "[electricity]\nprice = 3\n",
        "[cloud.x]\nhardware = 3\n", "[cloud.x]\nhardware = \"H100\"\n", "[buy.x]\nhardware = \"H100\"\n",
        "[electricity]\nprice_kwh = 1001\n", "[buy.x]\nhardware = \"H100\"\nprice = inf\n",
        "[electricity]\nprice_kwh = -1\n", "price_kwh = 3\n", "[buy.x\n"}) {
    try {
      read_prices(bad, "prices.toml");
      ADD_FAILURE() << bad;
    } catch (const ConfigError& error) {
      EXPECT_NE(error.render().find("prices.toml"), std::string::npos) << error.render();
    }
  }
}

TEST(Prices, WhatAStrangersFileSaysDoesNotSteerTheTerminal) {
  const Prices prices = read_prices("[electricity]\ncurrency = \"\\u001b[31mEUR\"\n", "prices.toml");
  EXPECT_EQ(prices.currency.find('\x1b'), std::string::npos) << prices.currency;
}

}  // namespace
}  // namespace tandem
