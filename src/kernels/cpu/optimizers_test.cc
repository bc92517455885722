#include "kernels/cpu/optimizers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/random_fill.h"
#include "kernels/optimizer_math.h"

namespace tandem {
namespace {

std::vector<float> normal_numbers(int64_t n, uint32_t site) {
  std::vector<float> out(n);
  fill_normal(out.data(), n, {1, 2, 3, site});
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// The papers' formulas in double, one weight.
struct DoubleAdam {
  double p, m = 0, v = 0;
  void step(double g, double lr, double b1, double b2, double eps, double decay, bool decoupled, int t) {
    if (decoupled)
      p -= lr * decay * p;
    else
      g += decay * p;
    m = b1 * m + (1 - b1) * g;
    v = b2 * v + (1 - b2) * g * g;
    p -= lr * (m / (1 - std::pow(b1, t))) / (std::sqrt(v / (1 - std::pow(b2, t))) + eps);
  }
};

TEST(Adam, FollowsTheFormulaInDoubleForAHundredSteps) {
  constexpr int kCount = 257;
  for (bool decoupled : {false, true}) {
    std::vector<float> p = normal_numbers(kCount, 1), m(kCount), v(kCount);
    std::vector<DoubleAdam> exact;
    for (float x : p) exact.push_back({x});
    for (int t = 1; t <= 100; ++t) {
      const std::vector<float> g = normal_numbers(kCount, 100 + t);
      adam_update(p.data(), g.data(), m.data(), v.data(), kCount,
                  adam_params(1e-2, 0.9, 0.999, 1e-8, 0.1, decoupled, t), 0.5f);
      for (int i = 0; i < kCount; ++i) exact[i].step(0.5 * g[i], 1e-2, 0.9, 0.999, 1e-8, 0.1, decoupled, t);
    }
    // Two roundings of the weight in each step (decay, move), each of at most 2^-24 of it: the worst case of 100 steps.
    for (int i = 0; i < kCount; ++i) {
      EXPECT_NEAR(p[i], exact[i].p, 200 * 0x1p-24 * std::max(1.0, std::fabs(exact[i].p))) << i;
      EXPECT_NEAR(m[i], exact[i].m, 1e-6) << i;
      EXPECT_NEAR(v[i], exact[i].v, 1e-6) << i;
    }
  }
}

TEST(Adam, ParamsAreRoundedFromDouble) {
  const AdamParams params = adam_params(1e-3, 0.9, 0.999, 1e-8, 0, false, 1);
  EXPECT_EQ(params.one_minus_beta2, static_cast<float>(1.0 - 0.999));
  EXPECT_EQ(params.bias2, static_cast<float>(1.0 - 0.999));
  for (int64_t step : {1, 2, 3, 10, 1000, 123457})
    EXPECT_NEAR(adam_params(1e-3, 0.9, 0.999, 1e-8, 0, false, step).bias2, 1 - std::pow(0.999, double(step)), 1e-7);
  EXPECT_EQ(adam_params(1e-3, 0.9, 0.999, 1e-8, 0, false, 1'000'000'000).bias2, 1.0f);
}

// volatile keeps the reference out of vectors: what is compared is one rounded operation at a time.
TEST(Adam, EveryVariantGivesTheBitsOfThePlainFormula) {
  for (int64_t n : {0, 1, 7, 16, 33, 1000, 4099}) {
    const AdamParams params = adam_params(3e-4, 0.9, 0.99, 1e-8, 0.01, n % 2 == 0, 3);
    const std::vector<float> g = normal_numbers(n, 2);
    std::vector<float> rp = normal_numbers(n, 1), rm = normal_numbers(n, 3), rv = normal_numbers(n, 4);
    for (float& x : rv) x = std::fabs(x);
    const std::vector<float> p0 = rp, m0 = rm, v0 = rv;
    const AdamConstants c = adam_constants(params, 0.25f);
    for (int64_t i = 0; i < n; ++i) {
      volatile float decayed = rp[i] * c.decay_factor, scaled = g[i] * c.grad_scale, pull = c.gradient_decay * rp[i];
      volatile float gradient = scaled + pull, gap = gradient - rm[i], move = c.one_minus_beta1 * gap;
      volatile float first = rm[i] + move, old = c.beta2 * rv[i], square = gradient * gradient;
      volatile float fresh = c.one_minus_beta2 * square, second = old + fresh, root = std::sqrt(float(second));
      volatile float unbiased = root * c.inverse_root_bias2, denominator = unbiased + c.eps;
      volatile float ratio = first / denominator, step = c.step_size * ratio;
      rp[i] = decayed - step, rm[i] = first, rv[i] = second;
    }
    for (CpuVariant variant : runnable_cpu_variants()) {
      std::vector<float> p = p0, m = m0, v = v0;
      adam_update(p.data(), g.data(), m.data(), v.data(), n, params, 0.25f, variant);
      EXPECT_TRUE(same_bits(p, rp) && same_bits(m, rm) && same_bits(v, rv)) << n << " variant " << int(variant);
    }
  }
}

TEST(Adam, ZeroGradientsWithoutDecayLeaveFreshWeightsAlone) {
  std::vector<float> p = normal_numbers(100, 1), g(100), m(100), v(100);
  const std::vector<float> before = p;
  adam_update(p.data(), g.data(), m.data(), v.data(), 100, adam_params(1e-3, 0.9, 0.999, 1e-8, 0, false, 1));
  EXPECT_TRUE(same_bits(p, before));
}

TEST(Sgd, FollowsTheFormulaInDouble) {
  constexpr int kCount = 131;
  for (int form = 0; form < 3; ++form) {
    SgdParams params{0.05f, form == 0 ? 0.0f : 0.9f, 0.01f, form == 2, true};
    std::vector<float> p = normal_numbers(kCount, 1),
                       velocity(kCount, std::nanf(""));  // the first step must not read it
    std::vector<double> ep(p.begin(), p.end()), ev(kCount);
    for (int t = 0; t < 50; ++t) {
      const std::vector<float> g = normal_numbers(kCount, 10 + t);
      sgd_update(p.data(), g.data(), form == 0 ? nullptr : velocity.data(), kCount, params, 2.0f);
      for (int i = 0; i < kCount; ++i) {
        const double gradient = 2.0 * g[i] + double(params.weight_decay) * ep[i];
        ev[i] = params.momentum * ev[i] + gradient;
        ep[i] -= double(params.lr) * (params.nesterov ? gradient + params.momentum * ev[i] : ev[i]);
        if (params.momentum == 0) ev[i] = 0;
      }
      params.first = false;
    }
    for (int i = 0; i < kCount; ++i) EXPECT_NEAR(p[i], ep[i], 2e-5) << "form " << form;
  }
}

TEST(Sgd, EveryVariantGivesTheBitsOfThePlainFormula) {
  for (int form = 0; form < 4; ++form)
    for (int64_t n : {0, 1, 15, 16, 1003}) {
      const SgdParams params{0.05f, form == 0 ? 0.0f : 0.9f, 0.01f, form == 2, form == 3};
      const std::vector<float> g = normal_numbers(n, 2);
      std::vector<float> rp = normal_numbers(n, 1), rv = normal_numbers(n, 3);
      const std::vector<float> p0 = rp, v0 = rv;
      for (int64_t i = 0; i < n; ++i) {
        volatile float scaled = g[i] * 0.5f, pull = params.weight_decay * rp[i], gradient = scaled + pull;
        volatile float direction = gradient;
        if (params.momentum != 0) {
          volatile float kept = params.momentum * rv[i];
          volatile float moved = params.first ? float(gradient) : kept + gradient;
          rv[i] = moved;
          volatile float ahead = params.momentum * moved;
          direction = params.nesterov ? gradient + ahead : float(moved);
        }
        volatile float step = params.lr * direction;
        rp[i] = rp[i] - step;
      }
      for (CpuVariant variant : runnable_cpu_variants()) {
        std::vector<float> p = p0, velocity = v0;
        sgd_update(p.data(), g.data(), velocity.data(), n, params, 0.5f, variant);
        EXPECT_TRUE(same_bits(p, rp) && same_bits(velocity, rv)) << form << " n " << n << " variant " << int(variant);
      }
    }
}

}  // namespace
}  // namespace tandem
