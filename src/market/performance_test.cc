#include "market/performance.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/errors.h"

namespace tandem {
namespace {

// Weekdays do not matter here: 28 days a month.
int32_t nth_date(size_t i) {
  const auto day = static_cast<int32_t>(i);
  return 20200101 + day / 336 * 10000 + day / 28 % 12 * 100 + day % 28;
}

EquityCurve curve_of(std::vector<int64_t> cents, std::string name = "test") {
  EquityCurve curve{.name = std::move(name), .dates = {}, .cents = std::move(cents), .held = {}};
  for (size_t i = 0; i < curve.cents.size(); ++i) curve.dates.push_back(nth_date(i));
  return curve;
}

EquityCurve sixty_days() {
  std::vector<int64_t> cents{10'000'000};
  for (int i = 0; i < 60; ++i) {
    const double r = ((i * 7919 + 13) % 201 - 95) / 10000.0;
    cents.push_back(static_cast<int64_t>(std::floor(static_cast<double>(cents.back()) * (1 + r) + .5)));
  }
  return curve_of(std::move(cents));
}

// The numbers were computed with numpy 2.2 from the same series.
TEST(Performance, EqualsAReferenceInNumpy) {
  const EquityCurve curve = sixty_days();
  ASSERT_EQ(curve.cents.back(), 10'192'502);
  const Performance p = performance_of(curve, .03);
  EXPECT_EQ(p.days, 60);
  EXPECT_NEAR(p.total_return, 0.019250200000000106, 1e-14);
  EXPECT_NEAR(*p.annual_return, 0.08337642905413412, 1e-13);
  EXPECT_NEAR(p.volatility, 0.0937963695744992, 1e-13);
  EXPECT_NEAR(*p.sharpe, 0.5801833714675985, 1e-11);
  EXPECT_NEAR(*p.sortino, 0.8574276059108543, 1e-11);
  EXPECT_NEAR(p.drawdown.depth, 0.03298009999999996, 1e-14);
  EXPECT_EQ(p.drawdown.peak, nth_date(0));
  EXPECT_EQ(p.drawdown.trough, nth_date(32));
  EXPECT_EQ(p.drawdown.recovered, nth_date(46));
  EXPECT_NEAR(*p.calmar, 2.528082966823455, 1e-11);
  EXPECT_NEAR(*p.cvar95, -0.009199987271368578, 1e-14);
  EXPECT_NEAR(*p.hit_days, 0.48333333333333334, 1e-15);
  EXPECT_NEAR(p.skew, 0.019899514711599158, 1e-10);
  EXPECT_NEAR(p.kurtosis, 1.8509196657171592, 1e-10);
}

// Up 1 %, down 1 %, by turns, n even: mean 0, every deviation 1 %.
TEST(Performance, OfAlternatingDaysIsTheClosedForm) {
  std::vector<double> returns;
  for (int i = 0; i < 40; ++i) returns.push_back(i % 2 == 0 ? .01 : -.01);
  const double deviation = .01 * std::sqrt(40.0 / 39.0);
  EXPECT_NEAR(*sharpe_ratio(returns, 0), 0, 1e-12);
  EXPECT_NEAR(*sharpe_ratio(returns, .0252), -.0001 / deviation * std::sqrt(252.0), 1e-12);
  EXPECT_NEAR(*sortino_ratio(returns, .0252), -.0001 / std::sqrt(.5 * .0101 * .0101) * std::sqrt(252.0), 1e-12);
  EXPECT_NEAR(*mean_of_worst(returns, .05), -.01, 1e-15);
  EXPECT_NEAR(return_moments(returns).kurtosis, 1, 1e-12);
}

TEST(Performance, WorstDaysCountInProportion) {
  const std::vector<double> returns{-.04, -.02, -.01, 0, .01, .02, .03, .01, .02, .05};
  EXPECT_NEAR(*mean_of_worst(returns, .1), -.04, 1e-15);
  EXPECT_NEAR(*mean_of_worst(returns, .15), (-.04 - .5 * .02) / 1.5, 1e-15);
  EXPECT_NEAR(*mean_of_worst(returns, .05), -.04, 1e-15);
}

TEST(Performance, OfCashHasNoRatios) {
  const Performance p = performance_of(curve_of(std::vector<int64_t>(100, 10'000'000)), .03);
  EXPECT_EQ(p.total_return, 0);
  EXPECT_EQ(p.volatility, 0);
  EXPECT_FALSE(p.sharpe || p.sortino || p.calmar || p.hit_days || p.exposure || p.turnover || p.hit_trades);
  EXPECT_EQ(p.drawdown.depth, 0);
  EXPECT_EQ(p.drawdown.peak, 0);
}

TEST(Performance, DrawdownThatIsNotMadeGoodHasNoDateForIt) {
  const Drawdown d = worst_drawdown(curve_of({100, 120, 90, 110, 60, 80}));
  EXPECT_DOUBLE_EQ(d.depth, .5);
  EXPECT_EQ(d.peak, nth_date(1));
  EXPECT_EQ(d.trough, nth_date(4));
  EXPECT_EQ(d.recovered, 0);
}

TEST(Performance, TradesGiveHitRateAndTurnover) {
  EquityCurve curve = curve_of(std::vector<int64_t>(127, 1'000'000));  // half a year
  curve.held.assign(127, 0);
  for (size_t i = 1; i <= 63; ++i) curve.held[i] = 1;
  const std::vector<ClosedTrade> trades{{"A", 1, 2, 100'000, 150'000},
                                        {"A", 2, 3, 100'000, 99'999},
                                        {"A", 3, 4, 50'000, 50'000},
                                        {"A", 3, 0, 100'001, 0}};
  const Performance p = performance_of(curve, 0, &trades);
  EXPECT_EQ(p.closed_trades, 3);
  EXPECT_EQ(p.open_trades, 1);
  EXPECT_NEAR(*p.hit_trades, 1.0 / 3, 1e-15);
  EXPECT_NEAR(*p.turnover, .65 * 2, 1e-12);
  EXPECT_NEAR(*p.exposure, .5, 1e-15);
}

TEST(EquityCurves, OfUnequalLengthAddUpWithCashThatWaits) {
  EquityCurve early{"early", {20200101, 20200102, 20200103}, {100, 110, 120}, {0, 1, 1}};
  EquityCurve late{"late", {20200103, 20200106, 20200107}, {200, 190, 210}, {0, 0, 1}};
  const EquityCurve sum = sum_of_curves(std::vector{early, late}, "both");
  EXPECT_EQ(sum.dates, (std::vector<int32_t>{20200101, 20200102, 20200103, 20200106, 20200107}));
  EXPECT_EQ(sum.cents, (std::vector<int64_t>{300, 310, 320, 310, 330}));
  EXPECT_EQ(sum.held, (std::vector<uint8_t>{0, 1, 1, 0, 1}));
}

TEST(EquityCurves, OfPeriodsCountEveryReturnOnce) {
  EquityCurve first{"a", {20200101, 20200102, 20200103}, {1000, 1100, 1210}, {}};
  EquityCurve second{"b", {20200103, 20200106, 20200107}, {1000, 900, 1800}, {}};
  const EquityCurve all = chained_curves(std::vector{first, second}, "all");
  EXPECT_EQ(all.dates, (std::vector<int32_t>{20200101, 20200102, 20200103, 20200106, 20200107}));
  EXPECT_EQ(all.cents, (std::vector<int64_t>{1000, 1100, 1210, 1089, 2178}));
  EXPECT_THROW(chained_curves(std::vector{second, first}, "wrong"), ConfigError);
}

TEST(EquityCurves, ThatCannotBeJudgedAreRefusedByNameAndDate) {
  const auto why = [](const EquityCurve& curve) -> std::string {
    try {
      check_curve(curve);
    } catch (const ConfigError& error) {
      return std::string(error.what()) + ": " + error.why();
    }
    return "";
  };
  EXPECT_EQ(why(curve_of({100, 90, 80})), "");
  EXPECT_NE(why(curve_of({100, 0, 80}, "agent")).find("agent cannot be judged: its value on 20200102 is 0"),
            std::string::npos);
  EXPECT_NE(why(curve_of({100, 90})).find("2 days"), std::string::npos);
  EXPECT_NE(why({"x", {20200102, 20200101, 20200103}, {1, 2, 3}, {}}).find("20200101 stands after 20200102"),
            std::string::npos);
  EXPECT_NE(why({"x", {20200102}, {1, 2, 3}, {}}).find("1 dates and 3 values"), std::string::npos);
}

}  // namespace
}  // namespace tandem
