// kernels/cpu/optimizers.h -- Adam, AdamW and SGD over a flat buffer: one pass over memory, the same bits on every
// device.
//
// The formulas are torch::optim's (AMSGrad left out). Gradients are multiplied by grad_scale first: the clip
// coefficient over the loss scale, in one number. g is not changed. No buffer may overlap another.
#pragma once

#include <cstdint>

#include "kernels/cpu/cpu_variant.h"

namespace tandem {

struct AdamParams {
  float lr = 1e-3f;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float eps = 1e-8f;
  float weight_decay = 0.0f;
  float bias1 = 1.0f;      // 1 - beta1^t
  float bias2 = 1.0f;      // 1 - beta2^t
  bool decoupled = false;  // AdamW: the decay acts on the weight, not through the gradient
  // 1 - 0.999f is 4.7e-5 away from 0.001, so adam_params() rounds these from double.
  float one_minus_beta1 = 1.0f - beta1;
  float one_minus_beta2 = 1.0f - beta2;
};

// The parameters of update number `step`, which counts from 1. Computed in double by repeated squaring (no std::pow,
// whose last bit differs between C libraries).
AdamParams adam_params(double lr, double beta1, double beta2, double eps, double weight_decay, bool decoupled,
                       int64_t step);

// p weights, g gradient, m and v the two moments.
void adam_update(float* p, const float* g, float* m, float* v, int64_t n, const AdamParams& params,
                 float grad_scale = 1.0f, CpuVariant variant = best_cpu_variant());

struct SgdParams {
  float lr = 1e-2f;
  float momentum = 0.0f;
  float weight_decay = 0.0f;
  bool nesterov = false;
  bool first = false;  // the first update: the momentum buffer is written, not read
};

// `velocity` may be null where momentum is 0; it is then neither read nor written.
void sgd_update(float* p, const float* g, float* velocity, int64_t n, const SgdParams& params, float grad_scale = 1.0f,
                CpuVariant variant = best_cpu_variant());

}  // namespace tandem
