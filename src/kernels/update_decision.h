// kernels/update_decision.h -- whether an update is made and how it is scaled, decided where the gradient lies.
//
// The GPU decides by itself, so that gradient, decision and optimizer run without a round trip to the host, and one
// CUDA graph serves every step.
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

// Which shard found NaN or Inf in which tensor: packed into one integer so that a maximum combines it; 0 is "nothing".
// Shard -1: some.
TANDEM_HD int64_t nan_flag(int64_t shard, int64_t tensor) { return (shard + 1) << 32 | (tensor + 1); }
TANDEM_HD int64_t nan_flag_shard(int64_t flag) { return (flag >> 32) - 1; }
TANDEM_HD int64_t nan_flag_tensor(int64_t flag) { return (flag & 0xFFFFFFFF) - 1; }

// A contiguous range of the flat weights with one set of optimizer parameters and one decision.
struct UpdateSegment {
  int64_t end = 0;     // it begins where the one before it ends; a multiple of 16
  int32_t decays = 0;  // index into UpdateParams::adam and sgd
  int32_t group = 0;   // index of the decision that applies: groups are clipped each by its own norm
};

// The weights of a target network, which move towards the updated ones by `rate`. Null: there is none.
struct TargetUpdate {
  float* weights = nullptr;
  float rate = 0;
};

// Of several groups that are clipped each by its own norm: if one is not to be updated, none is.
TANDEM_HD UpdateDecision decide_batched(UpdateDecision* decisions, int count) {
  UpdateDecision all;
  double squares = 0;
  for (int g = 0; g < count; ++g) {
    all.finite = all.finite && decisions[g].finite;
    all.skip = all.skip || decisions[g].skip;
    squares += decisions[g].norm * decisions[g].norm;
  }
  for (int g = 0; g < count; ++g) decisions[g].skip = all.skip;
  all.norm = count == 1 ? decisions[0].norm : sqrt(squares);
  all.scale = decisions[0].scale;
  return all;
}

TANDEM_HD UpdateDecision decide_update(double sum_of_squares, bool statistics_finite, bool flagged,
                                       const UpdateParams& params) {
  UpdateDecision decision;
  decision.norm = sqrt(sum_of_squares);
  const bool norm_finite = decision.norm - decision.norm == 0;  // NaN and Inf are not
  decision.finite = norm_finite && statistics_finite;
  decision.skip = flagged || !decision.finite;
  decision.scale = static_cast<float>(1 / params.loss_scale);
  const double norm = decision.norm / params.loss_scale;
  if (params.clip_norm > 0 && norm > params.clip_norm) decision.scale *= static_cast<float>(params.clip_norm / norm);
  return decision;
}

}  // namespace tandem
