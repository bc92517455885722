// kernels/optimizer_math.h -- the update of one weight, shared by the CPU loops and the CUDA kernels.
#pragma once

#include <cmath>

#include "kernels/cpu/optimizers.h"
#include "kernels/portable.h"

namespace tandem {

// What all weights of one update share, derived once.
struct AdamConstants {
  float step_size, inverse_root_bias2, eps, decay_factor, gradient_decay, one_minus_beta1, beta2, one_minus_beta2,
      grad_scale;
};

TANDEM_HD AdamConstants adam_constants(const AdamParams& params, float grad_scale) {
  AdamConstants c;
  c.step_size = params.lr / params.bias1;
  c.inverse_root_bias2 = 1.0f / sqrtf(params.bias2);
  c.eps = params.eps;
  c.decay_factor = params.decoupled ? 1.0f - params.lr * params.weight_decay : 1.0f;
  c.gradient_decay = params.decoupled ? 0.0f : params.weight_decay;
  c.one_minus_beta1 = params.one_minus_beta1;
  c.beta2 = params.beta2;
  c.one_minus_beta2 = params.one_minus_beta2;
  c.grad_scale = grad_scale;
  return c;
}

TANDEM_HD void adam_one(float& p, float g, float& m, float& v, const AdamConstants& c) {
  const float weight = p * c.decay_factor;
  const float gradient = g * c.grad_scale + c.gradient_decay * p;
  const float first = m + c.one_minus_beta1 * (gradient - m);
  const float second = c.beta2 * v + c.one_minus_beta2 * (gradient * gradient);
  const float denominator = sqrtf(second) * c.inverse_root_bias2 + c.eps;
  p = weight - c.step_size * (first / denominator);
  m = first;
  v = second;
}

// kMomentum and kNesterov are compile-time so that each loop has no branch.
template <bool kMomentum, bool kNesterov>
TANDEM_HD void sgd_one(float& p, float g, float* velocity, const SgdParams& params, float grad_scale) {
  const float gradient = g * grad_scale + params.weight_decay * p;
  float direction = gradient;
  if constexpr (kMomentum) {
    const float moved = params.first ? gradient : params.momentum * *velocity + gradient;
    *velocity = moved;
    direction = kNesterov ? gradient + params.momentum * moved : moved;
  }
  p = p - params.lr * direction;
}

}  // namespace tandem
