// market/option_math.h -- exp, the normal distribution, Black-Scholes prices with five Greeks, implied volatility.
//
// Double precision, and the same bits on a CPU and a GPU (kernels/portable.h): only + - * / sqrt, in a fixed order.
// European options on a spot without dividends. Years are of 252 trading days or of 365 days, as the caller counts;
// volatility and rate are a year's. Vega and rho are per unit (not per percent), theta per year (not per day).
// The polynomials are Chebyshev interpolants, computed with 50 digits.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/normal_quantile.h"
#include "kernels/portable.h"

namespace tandem {

inline constexpr double kInverseRootTwoPi = 0x1.9884533d43651p-2;  // 1 / sqrt(2 pi)

TANDEM_HD double power_of_two(int n) {  // -1022 <= n <= 1023
  const uint64_t bits = static_cast<uint64_t>(n + 1023) << 52;
  double x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

// e^x within 1 ulp; 0 below -745.2, infinity above 709.8; NaN stays NaN.
TANDEM_HD double exact_exp(double x) {
  if (x != x) return x;
  // Beyond these the result is 0 or infinity, and the exponent below is within int.
  const double held = x > 710.0 ? 710.0 : x < -750.0 ? -750.0 : x;
  // x = n ln 2 + r, |r| <= ln(2) / 2; n * kHigh is exact, because kHigh has 31 bits.
  constexpr double kHigh = 0x1.62e42fee00000p-1, kLow = 0x1.a39ef35793c76p-33, kToInteger = 0x1.8p52;
  const double n = (held * 0x1.71547652b82fep+0 + kToInteger) - kToInteger;
  const double high = held - n * kHigh, low = n * kLow;
  const double r = high - low;
  const double lost = (high - r) - low;
  const double z = r * r;
  // (e^r - 1 - r) / r^2, even and odd powers apart: two short chains instead of a long one.
  const double even =
      ((((0x1.1f7340dbc337ep-29 * z + 0x1.27e4db46cddd1p-22) * z + 0x1.a01a01a6e1e2ap-16) * z + 0x1.6c16c16c162c3p-10) *
           z +
       0x1.5555555555556p-5) *
          z +
      0x1.0000000000000p-1;
  const double odd =
      (((0x1.af4e554377204p-26 * z + 0x1.71de01fdbf9cap-19) * z + 0x1.a01a01abf85abp-13) * z + 0x1.11111111100bep-7) *
          z +
      0x1.5555555555557p-3;
  const double y = 1.0 + (r + (z * (even + r * odd) + lost));
  // In two halves, so that neither factor overflows and a subnormal result is rounded once.
  const int whole = static_cast<int>(n), half = whole / 2;
  return y * power_of_two(half) * power_of_two(whole - half);
}

// exp(-x^2 / 2). x^2 rounded would cost x^2 ulp: the square of x's upper bits is exact, and the rest is small.
TANDEM_HD double normal_bell(double x) {
  const double size = x < 0.0 ? -x : x;
  if (size > 39.0) return 0.0;
  const double upper = static_cast<double>(static_cast<float>(size));
  return exact_exp(-0.5 * upper * upper) * exact_exp(0.5 * (upper - size) * (upper + size));
}

TANDEM_HD double normal_density(double x) { return kInverseRootTwoPi * normal_bell(x); }

// 1 - Phi(x) for 0 <= x <= 39 over exp(-x^2 / 2): Mills' ratio / sqrt(2 pi). (1 + 1.25 x) times it lies between .498
// and .65 and is a polynomial of degree 24 in (x - 5) / (x + 5).
TANDEM_HD double normal_tail_ratio(double x) {
  const double t = (x - 5.0) / (x + 5.0), z = t * t;
  double even = 0x1.a979f45029814p-36;
  even = even * z - 0x1.0064ed6a7abb9p-31;
  even = even * z + 0x1.397e39fb8873dp-28;
  even = even * z - 0x1.0917ed5df4306p-25;
  even = even * z + 0x1.2f6e852e45dabp-23;
  even = even * z + 0x1.593990a14b713p-24;
  even = even * z - 0x1.d6cdadffb34c5p-17;
  even = even * z + 0x1.fda8c8dae3ca9p-13;
  even = even * z - 0x1.19cd4b4dca13dp-9;
  even = even * z - 0x1.5b84cd894782cp-6;
  even = even * z - 0x1.705abcaccf1c4p-5;
  even = even * z + 0x1.402b0e1739528p-7;
  even = even * z + 0x1.1d864303d4c84p-1;
  double odd = -0x1.0e3650b281946p-31;
  odd = odd * z + 0x1.871b26e9d6ac2p-28;
  odd = odd * z - 0x1.591cd3589b52bp-25;
  odd = odd * z + 0x1.120065a5d3d6dp-22;
  odd = odd * z - 0x1.c70a9cd07c4d0p-20;
  odd = odd * z + 0x1.86a696642912dp-17;
  odd = odd * z - 0x1.1a10ec6e761b2p-14;
  odd = odd * z - 0x1.8fcbd8a93ddd8p-16;
  odd = odd * z + 0x1.1ea0ee928f52ap-7;
  odd = odd * z + 0x1.2b35cdd1eb736p-5;
  odd = odd * z + 0x1.0c13034c170c4p-5;
  odd = odd * z - 0x1.41d8de9621f88p-4;
  return (even + t * odd) / (1.0 + 1.25 * x);
}

// Both tails at once, each with its own relative precision of a few ulp.
struct NormalParts {
  double below = 0, above = 0;  // Phi(x) and Phi(-x)
  double density = 0;
};
TANDEM_HD NormalParts normal_parts(double x) {
  const double size = x < 0.0 ? -x : x;
  NormalParts out;
  const double bell = normal_bell(size);
  const double tail = size <= 39.0 ? bell * normal_tail_ratio(size) : 0.0;
  out.density = kInverseRootTwoPi * bell;
  out.below = x < 0.0 ? tail : 1.0 - tail;
  out.above = x < 0.0 ? 1.0 - tail : tail;
  return out;
}

// Phi(x) within a few ulp, also far below 0.
TANDEM_HD double normal_cdf(double x) { return normal_parts(x).below; }

enum class OptionType : int32_t { kCall = 0, kPut = 1 };

struct OptionValue {
  double price = 0;
  double delta = 0;  // per unit of the spot
  double gamma = 0;  // of delta, per unit of the spot
  double vega = 0;   // per unit of volatility
  double theta = 0;  // per year that passes
  double rho = 0;    // per unit of the rate
};

// With less than this left of volatility * sqrt(years) the spot at expiry counts as known.
inline constexpr double kLeastDeviation = 1e-100;

// Value at expiry.
TANDEM_HD double option_payoff(OptionType type, double spot, double strike) {
  const double inside = type == OptionType::kCall ? spot - strike : strike - spot;
  return inside > 0.0 ? inside : 0.0;
}

// What price and Greeks are made of.
struct OptionParts {
  double discounted = 0;           // strike * exp(-rate * years)
  double root = 0, deviation = 0;  // sqrt(years), volatility * sqrt(years)
  NormalParts one, two;            // of d1 and d2
};
TANDEM_HD OptionParts option_parts(double spot, double strike, double years, double volatility, double rate) {
  OptionParts p;
  p.discounted = strike * exact_exp(-rate * years);
  p.root = sqrt(years);
  p.deviation = volatility * p.root;
  const double moneyness = exact_log(spot / strike) + rate * years;  // ln(forward / strike)
  if (p.deviation < kLeastDeviation) {
    const double in = moneyness > 0.0 ? 1.0 : moneyness < 0.0 ? 0.0 : 0.5;
    p.one.below = p.two.below = in;
    p.one.above = p.two.above = 1.0 - in;
  } else {
    const double d1 = moneyness / p.deviation + 0.5 * p.deviation;
    p.one = normal_parts(d1);
    p.two = normal_parts(d1 - p.deviation);
  }
  return p;
}

TANDEM_HD double price_of_parts(OptionType type, double spot, const OptionParts& p) {
  const double price = type == OptionType::kCall ? spot * p.one.below - p.discounted * p.two.below
                                                 : p.discounted * p.two.above - spot * p.one.above;
  return price > 0.0 ? price : 0.0;  // rounding of two nearly equal terms
}

// Black-Scholes. Spot and strike above 0 and finite, volatility >= 0, |rate * years| < 700; years <= 0: at expiry.
TANDEM_HD double option_price(OptionType type, double spot, double strike, double years, double volatility,
                              double rate) {
  if (years <= 0.0) return option_payoff(type, spot, strike);
  return price_of_parts(type, spot, option_parts(spot, strike, years, volatility, rate));
}

// The same with the Greeks. At expiry delta is 1, 0 or, with the spot at the strike, 1/2 (put: minus these), the others
// are 0.
TANDEM_HD OptionValue option_value(OptionType type, double spot, double strike, double years, double volatility,
                                   double rate) {
  const bool call = type == OptionType::kCall;
  OptionValue v;
  if (years <= 0.0) {
    v.price = option_payoff(type, spot, strike);
    const double in = spot > strike ? 1.0 : spot < strike ? 0.0 : 0.5;
    v.delta = call ? in : in - 1.0;
    return v;
  }
  const OptionParts p = option_parts(spot, strike, years, volatility, rate);
  v.price = price_of_parts(type, spot, p);
  v.delta = call ? p.one.below : -p.one.above;
  // Far from the money the density is 0 while the divisor may be as small as a double gets.
  v.gamma = p.one.density > 0.0 ? p.one.density / (spot * p.deviation) : 0.0;
  v.vega = spot * p.one.density * p.root;
  const double money = p.discounted * (call ? p.two.below : -p.two.above);
  v.theta = -(spot * p.one.density * volatility) / (2.0 * p.root) - rate * money;
  v.rho = years * money;
  return v;
}

inline constexpr double kLeastVolatility = 1e-4, kMostVolatility = 20.0;  // that implied_volatility() looks for

// The volatility at which Black-Scholes gives `price`; -1 where there is none: a price at or below what the option is
// worth without volatility, at or above its upper bound, or of a volatility out of [kLeastVolatility, kMostVolatility].
// Newton's method on the logarithm of the time value, kept inside a bracket that shrinks with every step.
[[maybe_unused]] TANDEM_HD_NOINLINE double implied_volatility(OptionType type, double price, double spot, double strike,
                                                              double years, double rate) {
  if (!(years > 0.0) || !(price > 0.0) || !(spot > 0.0) || !(strike > 0.0)) return -1.0;
  // The one that is out of the money has the same volatility, and its price is all time value.
  const double discounted = strike * exact_exp(-rate * years);
  const bool call = type == OptionType::kCall, call_outside = spot <= discounted;
  const double forward_gain = spot - discounted;  // call - put
  const double target = call == call_outside ? price : call ? price - forward_gain : price + forward_gain;
  const OptionType outside = call_outside ? OptionType::kCall : OptionType::kPut;
  if (!(target > 0.0) || !(target < (call_outside ? spot : discounted))) return -1.0;

  double low = kLeastVolatility, high = kMostVolatility;
  if (option_price(outside, spot, strike, years, low, rate) > target) return -1.0;
  if (option_price(outside, spot, strike, years, high, rate) < target) return -1.0;
  const double wanted = exact_log(target < 1e-300 ? 1e-300 : target);
  const double log_moneyness = exact_log(spot / discounted);
  const double size = log_moneyness < 0.0 ? -log_moneyness : log_moneyness;
  double volatility = sqrt((2.0 * size + 0.01) / years);  // near the point where vega is largest
  for (int i = 0; i < 100; ++i) {
    if (!(volatility > low && volatility < high)) volatility = 0.5 * (low + high);
    const OptionParts p = option_parts(spot, strike, years, volatility, rate);
    const double found = price_of_parts(outside, spot, p), vega = spot * p.one.density * p.root;
    if (found == target) break;
    (found > target ? high : low) = volatility;
    const double step = found > 1e-300 && vega > 0.0 ? (wanted - exact_log(found)) * found / vega : high - low;
    volatility += step;
    if ((step < 0.0 ? -step : step) <= 1e-15 * volatility || high - low <= 1e-15 * high) break;
  }
  return volatility < low ? low : volatility > high ? high : volatility;
}

// The volatility of a strike: the smile of a day (MarketDay) is a line in ln(strike / spot) / sqrt(years), which is
// held flat beyond 3 units of it; the result is within [.01, 5]. Within a week of expiry the slope is that of a week.
TANDEM_HD double smile_volatility(double at_the_money, double skew, double spot, double strike, double years) {
  const double week = 5.0 / 252.0;
  const double raw = exact_log(strike / spot) / sqrt(years < week ? week : years);
  const double distance = raw > 3.0 ? 3.0 : raw < -3.0 ? -3.0 : raw;
  const double volatility = at_the_money + skew * distance;
  return volatility < 0.01 ? 0.01 : volatility > 5.0 ? 5.0 : volatility;
}

}  // namespace tandem
