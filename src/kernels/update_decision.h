// kernels/update_decision.h -- whether an update is made and how it is scaled, decided where the gradient lies.
//
// A GPU decides by itself, so that gradient, decision and optimizer are one queue of work without a word from the
// host, and one recording of it serves every step.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cpu/optimizers.h"
#include "kernels/portable.h"

namespace tandem {

// What the host knows before the gradient is there.
struct UpdateParams {
  double loss_scale = 1;
  double clip_norm = 0;  // 0: no clipping
  int64_t flag = 0;      // not 0: some shard's gradient is bad, no update
  AdamParams adam[2];    // [1]: of weights that decay
  SgdParams sgd[2];
};

// What was decided.
struct UpdateDecision {
  double norm = 0;     // of the gradient, still scaled
  float scale = 0;     // of the gradient in the update: clipping and unscaling
  int32_t finite = 1;  // 0: the gradient or the statistics hold NaN or Inf
  int32_t skip = 0;    // not 0: nothing is changed
};

// A stretch of the weights that is updated alike.
struct UpdatePiece {
  int64_t end = 0;     // it begins where the one before it ends; a multiple of 16
  int32_t decays = 0;  // which of the order's parameters
  int32_t group = 0;   // whose plan
};

// Weights that go a part of the way to the updated ones, such as those of a target network. Null: there are none.
struct TargetUpdate {
  float* weights = nullptr;
  float rate = 0;
};

// Of several groups that are clipped each by its own norm: if one is not to be updated, none is.
TANDEM_HD UpdateDecision decide_batched(UpdateDecision* plans, int count) {
  UpdateDecision all;
  double squares = 0;
  for (int g = 0; g < count; ++g) {
    all.finite = all.finite && plans[g].finite;
    all.skip = all.skip || plans[g].skip;
    squares += plans[g].norm * plans[g].norm;
  }
  for (int g = 0; g < count; ++g) plans[g].skip = all.skip;
  all.norm = count == 1 ? plans[0].norm : sqrt(squares);
  all.scale = plans[0].scale;
  return all;
}

TANDEM_HD UpdateDecision decide_update(double sum_of_squares, bool statistics_finite, bool flagged,
                                       const UpdateParams& order) {
  UpdateDecision plan;
  plan.norm = sqrt(sum_of_squares);
  const bool norm_finite = plan.norm - plan.norm == 0;  // NaN and Inf are not
  plan.finite = norm_finite && statistics_finite;
  plan.skip = flagged || !plan.finite;
  plan.scale = static_cast<float>(1 / order.loss_scale);
  const double norm = plan.norm / order.loss_scale;
  if (order.clip_norm > 0 && norm > order.clip_norm) plan.scale *= static_cast<float>(order.clip_norm / norm);
  return plan;
}

}  // namespace tandem
