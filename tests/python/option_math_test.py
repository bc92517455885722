#!/usr/bin/env python3
"""Prices and five Greeks over a wide grid beside QuantLib's, and implied volatilities.

usage: option_math_test.py <option_grid_tool>      exit code 77: skipped, with the reason
A number agrees if it is within 1e-6 of QuantLib's, relative, or within 1e-9 of the spot.
"""
import itertools
import math
import subprocess
import sys

try:
    import QuantLib as ql
except ImportError as error:
    print(f"skipped: no QuantLib in {sys.executable} ({error})")
    sys.exit(77)

NAMES = ["price", "delta", "gamma", "vega", "theta", "rho"]
TYPES = {"call": ql.Option.Call, "put": ql.Option.Put}


def grid():
    spots = [1.0, 100.0, 4321.5]
    ratios = [0.2, 0.5, 0.8, 0.9, 0.95, 0.99, 1.0, 1.01, 1.05, 1.1, 1.25, 2.0, 5.0]
    years = [1 / 365, 7 / 365, 30 / 365, 0.25, 1.0, 2.0, 10.0]
    volatilities = [0.01, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3.0]
    rates = [-0.02, 0.0, 0.03, 0.12]
    for kind, spot, ratio, time, volatility, rate in itertools.product(TYPES, spots, ratios, years, volatilities, rates):
        yield kind, spot, spot * ratio, time, volatility, rate


def judged(kind, spot, strike, years, volatility, rate):
    discount = math.exp(-rate * years)
    c = ql.BlackCalculator(ql.PlainVanillaPayoff(TYPES[kind], strike), spot / discount, volatility * years**0.5, discount)
    return [c.value(), c.delta(spot), c.gamma(spot), c.vega(years), c.theta(spot, years), c.rho(years)]


def main():
    cases = list(grid())
    text = "".join(f"{k} {' '.join(repr(float(x)) for x in rest)}\n" for k, *rest in cases)
    lines = subprocess.run([sys.argv[1]], input=text, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == len(cases), (len(lines), len(cases))
    bad, worst, inverted, worst_volatility = [], dict.fromkeys(NAMES, 0.0), 0, 0.0
    for case, line in zip(cases, lines):
        *ours, implied = map(float, line.split())
        spot, volatility = case[1], case[4]
        theirs = judged(*case)
        for name, a, b in zip(NAMES, ours, theirs):
            error = abs(a - b)
            if not (error <= 1e-6 * abs(b) or error <= 1e-9 * spot):
                bad.append(f"{name} of {case}: {a} instead of {b}")
            if abs(b) > 1e-6 * spot:
                worst[name] = max(worst[name], error / abs(b))
        if theirs[3] > 1e-3 * spot:  # vega: else the price's last digits hold no volatility
            inverted += 1
            worst_volatility = max(worst_volatility, abs(implied - volatility))
    assert not bad, f"{len(bad)} of {6 * len(cases)} numbers differ:\n" + "\n".join(bad[:10])
    assert inverted > len(cases) // 5 and worst_volatility < 1e-9, (inverted, worst_volatility)
    print(f"{len(cases)} options: largest relative difference " + ", ".join(f"{k} {v:.1e}" for k, v in worst.items()) +
          f"; implied volatility of {inverted}: {worst_volatility:.1e}")


main()
