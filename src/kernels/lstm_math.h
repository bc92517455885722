// kernels/lstm_math.h -- one LSTM cell, forward and backward, for one hidden unit of one row.
//
// Only + - * and FMA, all rounded as IEEE 754 says, so CPU and GPU give equal bits; FMA is written out, as in
// gelu_math.h. Absolute error of logistic and tanh: below 3e-7; tanh(0) is 0, and neither leaves its range.
#pragma once

#include "kernels/gelu_math.h"

namespace tandem {

// 1 / (1 + exp(-x)). Beyond 60 it is 0 or 1 to the last bit that matters.
TANDEM_HD float lstm_logistic(float x) {
  constexpr float kLog2e = 1.44269504f, kFar = 60.0f;
  const float above = x < -kFar ? -kFar : x, c = above > kFar ? kFar : above;
  const float s = gelu_reciprocal(1.0f + gelu_exp2(-kLog2e * c));
  return gelu_fma(c, 0.0f, s < 1.0f ? s : 1.0f);  // NaN stays NaN: the exponent's bits above would lose it
}

// x P(x^2) / Q(x^2), a minimax fraction for |x| < 7.9; beyond, tanh stays what it is there.
TANDEM_HD float lstm_tanh(float x) {
  constexpr float kFar = 7.90531110763549805f;
  const float above = x < -kFar ? -kFar : x, c = above > kFar ? kFar : above;
  const float square = c * c;
  float p = -2.76076847742355e-16f;
  p = gelu_fma(p, square, 2.00018790482477e-13f);
  p = gelu_fma(p, square, -8.60467152213735e-11f);
  p = gelu_fma(p, square, 5.12229709037114e-08f);
  p = gelu_fma(p, square, 1.48572235717979e-05f);
  p = gelu_fma(p, square, 6.37261928875436e-04f);
  p = gelu_fma(p, square, 4.89352455891786e-03f);
  float q = 1.19825839466702e-06f;
  q = gelu_fma(q, square, 1.18534705686654e-04f);
  q = gelu_fma(q, square, 2.26843463243900e-03f);
  q = gelu_fma(q, square, 4.89352518554385e-03f);
  const float y = c * p * gelu_reciprocal(q), low = y < -1.0f ? -1.0f : y;
  return low > 1.0f ? 1.0f : low;
}

struct LstmGates {
  float input, forget, cell, output;  // activated: logistic, logistic, tanh, logistic
};
TANDEM_HD LstmGates lstm_activated(float input, float forget, float cell, float output) {
  return {lstm_logistic(input), lstm_logistic(forget), lstm_tanh(cell), lstm_logistic(output)};
}
TANDEM_HD float lstm_cell_state(const LstmGates& g, float before) {
  return gelu_fma(g.forget, before, g.input * g.cell);
}
TANDEM_HD float lstm_hidden_state(const LstmGates& g, float cell_state) { return g.output * lstm_tanh(cell_state); }

// Gradients of the gates before their activation, and of the cell state before this step.
struct LstmGradients {
  LstmGates gates;
  float before;
};
TANDEM_HD LstmGradients lstm_gradients(const LstmGates& g, float cell_state, float before, float hidden_grad,
                                       float cell_grad) {
  const float t = lstm_tanh(cell_state);
  const float cell = gelu_fma(hidden_grad * g.output, gelu_fma(-t, t, 1.0f), cell_grad);
  return {{cell * g.cell * (g.input * (1.0f - g.input)), cell * before * (g.forget * (1.0f - g.forget)),
           cell * g.input * gelu_fma(-g.cell, g.cell, 1.0f), hidden_grad * t * (g.output * (1.0f - g.output))},
          cell * g.forget};
}

}  // namespace tandem
