// tests/python/option_grid_tool.cc -- our side of option_math_test.py: prices, Greeks and implied volatilities of what
// stdin lists.
//
//   in    one line each: call|put spot strike years volatility rate
//   out   price delta gamma vega theta rho implied_volatility(price), 17 digits
#include <cstdio>
#include <cstring>

#include "market/option_math.h"

int main() {
  using namespace tandem;
  char type[8];
  double spot = 0, strike = 0, years = 0, volatility = 0, rate = 0;
  while (std::scanf("%7s %lf %lf %lf %lf %lf", type, &spot, &strike, &years, &volatility, &rate) == 6) {
    const OptionType kind = std::strcmp(type, "call") == 0 ? OptionType::kCall : OptionType::kPut;
    const OptionValue v = option_value(kind, spot, strike, years, volatility, rate);
    std::printf("%.17g %.17g %.17g %.17g %.17g %.17g %.17g\n", v.price, v.delta, v.gamma, v.vega, v.theta, v.rho,
                implied_volatility(kind, v.price, spot, strike, years, rate));
  }
  return 0;
}
