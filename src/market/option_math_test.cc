#include "market/option_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "kernels/philox.h"

namespace tandem {
namespace {

constexpr OptionType kBothTypes[] = {OptionType::kCall, OptionType::kPut};

double option_ulps(double found, long double expected) {
  const double near = static_cast<double>(expected);
  const double ulp = std::nextafter(std::fabs(near), std::numeric_limits<double>::infinity()) - std::fabs(near);
  return static_cast<double>(std::fabs(static_cast<long double>(found) - expected) / ulp);
}

TEST(OptionMath, ExpIsWithinOneUlpOfLongDouble) {
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    const double x = -745.0 + 1454.7 * random_uniform({1, 0, 0, 0}, static_cast<uint64_t>(i));
    const double fine = x * 1e-3;
    worst = std::max(worst, option_ulps(exact_exp(fine), expl(fine)));
    if (x > -708) worst = std::max(worst, option_ulps(exact_exp(x), expl(x)));
  }
  EXPECT_LT(worst, 1.0);
}

TEST(OptionMath, ExpHoldsAtItsEnds) {
  EXPECT_EQ(exact_exp(0.0), 1.0);
  EXPECT_EQ(exact_exp(-1e300), 0.0);
  EXPECT_EQ(exact_exp(-746.0), 0.0);
  EXPECT_EQ(exact_exp(1e300), std::numeric_limits<double>::infinity());
  EXPECT_EQ(exact_exp(-INFINITY), 0.0);
  EXPECT_EQ(exact_exp(710.0), std::numeric_limits<double>::infinity());
  EXPECT_LT(option_ulps(exact_exp(709.5), expl(709.5L)), 1.0);
  EXPECT_LT(option_ulps(exact_exp(-744.0), expl(-744.0L)), 1.01);  // a subnormal: rounded a second time
  EXPECT_TRUE(std::isnan(exact_exp(NAN)));
}

TEST(OptionMath, LogIsWithinOneUlpOfLongDouble) {
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    const double x = std::exp(-20 + 40.0 * random_uniform({2, 0, 0, 0}, static_cast<uint64_t>(i)));
    worst = std::max(worst, option_ulps(exact_log(x), logl(x)));
  }
  EXPECT_LT(worst, 1.01);
}

TEST(OptionMath, NormalCdfIsWithinSixUlpOfLongDoubleFarIntoTheTail) {
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    const double x = -37.5 + 46.0 * random_uniform({3, 0, 0, 0}, static_cast<uint64_t>(i));
    // x / sqrt(2) rounded to long double costs x^2 of its ulp: 64 bits have 11 more than ours.
    const long double expected = erfcl(-static_cast<long double>(x) * 0.707106781186547524400844362104849039L) / 2;
    worst = std::max(worst, option_ulps(normal_cdf(x), expected));
    EXPECT_EQ(normal_parts(x).below, normal_parts(-x).above);
  }
  EXPECT_LT(worst, 6.0);
  RecordProperty("worst_ulps", std::to_string(worst));
  EXPECT_EQ(normal_cdf(0.0), 0.5);
  EXPECT_EQ(normal_cdf(-INFINITY), 0.0);
  EXPECT_EQ(normal_cdf(INFINITY), 1.0);
  EXPECT_EQ(normal_density(-INFINITY), 0.0);
}

TEST(OptionMath, NormalDensityIsWithinFourUlp) {
  double worst = 0;
  for (int i = 0; i < 100000; ++i) {
    const double x = -37.0 + 74.0 * random_uniform({4, 0, 0, 0}, static_cast<uint64_t>(i));
    const long double wide = x;
    worst = std::max(worst,
                     option_ulps(normal_density(x), expl(-wide * wide / 2) * 0.398942280401432677939946059934381868L));
  }
  EXPECT_LT(worst, 4.0);
}

struct OptionCase {
  double spot, strike, years, volatility, rate;
};
OptionCase random_case(uint64_t i) {
  const auto u = [&](uint64_t k) { return static_cast<double>(random_uniform({5, i, 0, 0}, k)); };
  const double spot = std::exp(std::log(1.0) + 8 * u(0));
  return {spot, spot * std::exp(-1.5 + 3 * u(1)), 0.004 + 3 * u(2), 0.02 + 2 * u(3), -0.05 + 0.25 * u(4)};
}

TEST(OptionMath, CallsAndPutsKeepParity) {
  for (uint64_t i = 0; i < 20000; ++i) {
    const OptionCase c = random_case(i);
    const OptionValue call = option_value(OptionType::kCall, c.spot, c.strike, c.years, c.volatility, c.rate);
    const OptionValue put = option_value(OptionType::kPut, c.spot, c.strike, c.years, c.volatility, c.rate);
    const double forward = c.spot - c.strike * std::exp(-c.rate * c.years);
    EXPECT_NEAR(call.price - put.price, forward, 1e-14 * (c.spot + c.strike));
    EXPECT_NEAR(call.delta - put.delta, 1.0, 1e-15);
    EXPECT_EQ(call.gamma, put.gamma);
    EXPECT_EQ(call.vega, put.vega);
    EXPECT_EQ(call.price, option_price(OptionType::kCall, c.spot, c.strike, c.years, c.volatility, c.rate));
    EXPECT_EQ(put.price, option_price(OptionType::kPut, c.spot, c.strike, c.years, c.volatility, c.rate));
  }
}

TEST(OptionMath, GreeksAreTheSlopesOfThePrice) {
  for (uint64_t i = 0; i < 2000; ++i) {
    OptionCase c = random_case(i);
    c.spot = 100, c.strike = 60 + static_cast<double>(i % 80), c.years += 0.1, c.volatility += 0.1;
    for (const OptionType type : kBothTypes) {
      const OptionValue v = option_value(type, c.spot, c.strike, c.years, c.volatility, c.rate);
      const auto slope = [&](double OptionCase::*field, double h) {
        OptionCase up = c, down = c;
        up.*field += h, down.*field -= h;
        const auto price = [&](const OptionCase& o) {
          return option_price(type, o.spot, o.strike, o.years, o.volatility, o.rate);
        };
        return (price(up) - price(down)) / (2 * h);
      };
      EXPECT_NEAR(v.delta, slope(&OptionCase::spot, 1e-3), 1e-7);
      EXPECT_NEAR(v.vega, slope(&OptionCase::volatility, 1e-5), 1e-5);
      EXPECT_NEAR(v.theta, -slope(&OptionCase::years, 1e-5), 1e-5);
      EXPECT_NEAR(v.rho, slope(&OptionCase::rate, 1e-5), 1e-4);
      const double h = 1e-2;
      const auto delta_at = [&](double spot) {
        return option_value(type, spot, c.strike, c.years, c.volatility, c.rate).delta;
      };
      EXPECT_NEAR(v.gamma, (delta_at(c.spot + h) - delta_at(c.spot - h)) / (2 * h), 1e-7);
    }
  }
}

TEST(OptionMath, AtExpiryAnOptionIsItsPayoff) {
  EXPECT_EQ(option_price(OptionType::kCall, 110, 100, 0, 0.2, 0.03), 10);
  EXPECT_EQ(option_price(OptionType::kPut, 110, 100, 0, 0.2, 0.03), 0);
  EXPECT_EQ(option_price(OptionType::kPut, 90, 100, -1, 0.2, 0.03), 10);
  EXPECT_EQ(option_value(OptionType::kCall, 110, 100, 0, 0.2, 0.03).delta, 1);
  EXPECT_EQ(option_value(OptionType::kPut, 110, 100, 0, 0.2, 0.03).delta, 0);
  EXPECT_EQ(option_value(OptionType::kPut, 100, 100, 0, 0.2, 0.03).delta, -0.5);
}

TEST(OptionMath, WithoutVolatilityAnOptionIsItsDiscountedPayoff) {
  for (const double volatility : {0.0, 1e-300, 1e-120, 1e-14, 1e-9}) {
    const OptionValue in = option_value(OptionType::kCall, 110, 100, 0.5, volatility, 0.04);
    EXPECT_NEAR(in.price, 110 - 100 * std::exp(-0.02), 1e-12);
    EXPECT_EQ(in.delta, 1);
    EXPECT_EQ(in.gamma, 0);
    EXPECT_NEAR(in.theta, -0.04 * 100 * std::exp(-0.02), 1e-12);
    const OptionValue out = option_value(OptionType::kPut, 110, 100, 0.5, volatility, 0.04);
    EXPECT_EQ(out.price, 0);
    EXPECT_EQ(out.delta, 0);
    EXPECT_EQ(option_value(OptionType::kCall, 100, 100, 0.5, volatility, 0).price,
              0 + option_price(OptionType::kPut, 100, 100, 0.5, volatility, 0));
  }
}

TEST(OptionMath, FarStrikesAndExtremeInputsGiveFiniteNumbers) {
  for (const double strike : {1e-8, 1e-3, 1.0, 1e3, 1e12})
    for (const double years : {1e-12, 1e-4, 1.0, 50.0})
      for (const double volatility : {0.0, 1e-200, 1e-6, 0.2, 5.0, 100.0})
        for (const OptionType type : kBothTypes) {
          const OptionValue v = option_value(type, 100, strike, years, volatility, 0.05);
          for (const double x : {v.price, v.delta, v.gamma, v.vega, v.theta, v.rho}) EXPECT_TRUE(std::isfinite(x));
          EXPECT_GE(v.price, 0);
          EXPECT_LE(v.price, type == OptionType::kCall ? 100 * (1 + 1e-15) : strike);
          EXPECT_GE(v.gamma, 0);
        }
}

TEST(OptionMath, ImpliedVolatilityFindsWhatThePriceWasMadeWith) {
  int tried = 0;
  for (uint64_t i = 0; i < 20000; ++i) {
    const OptionCase c = random_case(i);
    for (const OptionType type : kBothTypes) {
      const OptionParts p = option_parts(c.spot, c.strike, c.years, c.volatility, c.rate);
      const double vega = c.spot * p.one.density * p.root;
      if (vega < 1e-4 * c.spot) continue;  // else the price's last bit is worth more volatility than is compared
      const double price = option_price(type, c.spot, c.strike, c.years, c.volatility, c.rate);
      ++tried;
      EXPECT_NEAR(implied_volatility(type, price, c.spot, c.strike, c.years, c.rate), c.volatility, 2e-10) << i;
    }
  }
  EXPECT_GT(tried, 20000);
}

TEST(OptionMath, ImpliedVolatilityRefusesPricesThatNoVolatilityGives) {
  const double inside = 110 - 100 * std::exp(-0.015);
  EXPECT_EQ(implied_volatility(OptionType::kCall, inside - 0.01, 110, 100, 0.5, 0.03), -1);
  EXPECT_EQ(implied_volatility(OptionType::kCall, 110.0, 110, 100, 0.5, 0.03), -1);
  EXPECT_EQ(implied_volatility(OptionType::kPut, 100.0, 110, 100, 0.5, 0.03), -1);
  EXPECT_EQ(implied_volatility(OptionType::kPut, 0.0, 110, 100, 0.5, 0.03), -1);
  EXPECT_EQ(implied_volatility(OptionType::kPut, 1.0, 110, 100, 0.0, 0.03), -1);
  EXPECT_EQ(implied_volatility(OptionType::kPut, NAN, 110, 100, 0.5, 0.03), -1);
}

TEST(OptionMath, ASmileIsALineThatIsHeldFlatFarOut) {
  EXPECT_EQ(smile_volatility(0.2, -0.1, 100, 100, 0.1), 0.2);
  EXPECT_NEAR(smile_volatility(0.2, -0.1, 100, 90, 1.0 / 12), 0.2 - 0.1 * std::log(0.9) * std::sqrt(12.0), 1e-14);
  EXPECT_EQ(smile_volatility(0.2, -0.1, 100, 1, 0.1), 0.5);
  EXPECT_EQ(smile_volatility(0.02, -0.1, 100, 1000, 0.1), 0.01);
  EXPECT_EQ(smile_volatility(0.2, -0.1, 100, 95, 0.0), smile_volatility(0.2, -0.1, 100, 95, 5.0 / 252));
}

}  // namespace
}  // namespace tandem
