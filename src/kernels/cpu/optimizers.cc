#include "kernels/cpu/optimizers.h"

#include "kernels/cpu/cpu_dispatch.h"
#include "kernels/optimizer_math.h"

namespace tandem {
namespace {

double integer_power(double base, int64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent >>= 1, base *= base)
    if (exponent & 1) result *= base;
  return result;
}

template <bool kMomentum, bool kNesterov>
void sgd_loop(float* p, const float* g, float* velocity, int64_t n, const SgdParams& params, float grad_scale,
              CpuVariant variant) {
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    TANDEM_INDEPENDENT
    for (int64_t i = 0; i < n; ++i)
      sgd_one<kMomentum, kNesterov>(p[i], g[i], kMomentum ? velocity + i : nullptr, params, grad_scale);
  });
}

}  // namespace

AdamParams adam_params(double lr, double beta1, double beta2, double eps, double weight_decay, bool decoupled,
                       int64_t step) {
  AdamParams params;
  params.lr = static_cast<float>(lr);
  params.beta1 = static_cast<float>(beta1);
  params.beta2 = static_cast<float>(beta2);
  params.eps = static_cast<float>(eps);
  params.weight_decay = static_cast<float>(weight_decay);
  params.bias1 = static_cast<float>(1.0 - integer_power(beta1, step));
  params.bias2 = static_cast<float>(1.0 - integer_power(beta2, step));
  params.decoupled = decoupled;
  params.one_minus_beta1 = static_cast<float>(1.0 - beta1);
  params.one_minus_beta2 = static_cast<float>(1.0 - beta2);
  return params;
}

void adam_update(float* p, const float* g, float* m, float* v, int64_t n, const AdamParams& params, float grad_scale,
                 CpuVariant variant) {
  const AdamConstants constants = adam_constants(params, grad_scale);
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    TANDEM_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
      float weight = p[i], first = m[i], second = v[i];
      adam_one(weight, g[i], first, second, constants);
      p[i] = weight;
      m[i] = first;
      v[i] = second;
    }
  });
}

void sgd_update(float* p, const float* g, float* velocity, int64_t n, const SgdParams& params, float grad_scale,
                CpuVariant variant) {
  if (params.momentum == 0.0f)
    sgd_loop<false, false>(p, g, velocity, n, params, grad_scale, variant);
  else if (params.nesterov)
    sgd_loop<true, true>(p, g, velocity, n, params, grad_scale, variant);
  else
    sgd_loop<true, false>(p, g, velocity, n, params, grad_scale, variant);
}

}  // namespace tandem
