// rl/dqn/gpu/net_norms.h -- the two layer norms of the dueling net: where their rows and weights lie.
#pragma once

#include "kernels/gpu/layer_norm.h"
#include "rl/dqn/dqn_gpu.h"

namespace tandem::cuda {

static_assert(kMaxGpuWidth <= kMaxNormWidth);
// Of a row that is learned from: 0, the net on the state; 1, the net on the next state; 2, the target network on that.
inline constexpr int kPasses = 3;

inline LayerNorm first_norm(const DqnShape& shape, const DqnOffsets& o, const DqnWork& w, int passes, int rows,
                            bool learning) {
  return {w.preact1, w.out1, w.inv_std1, o.scale1, o.shift1, passes, rows, shape.hidden1, learning, kDropout};
}
inline LayerNorm second_norm(const DqnShape& shape, const DqnOffsets& o, const DqnWork& w, int passes, int rows,
                             bool learning) {
  return {w.preact2, w.out2, w.inv_std2, o.scale2, o.shift2, passes, rows, shape.hidden2, learning, kDropout + 1};
}
inline LayerNormBackward first_norm_backward(const DqnShape& shape, const DqnOffsets& o, const DqnWork& w) {
  return {w.preact1, w.out1,        w.inv_std1,        w.norm_out_grad1, w.preact_grad1,
          o.scale1,  shape.hidden1, shape.shard_batch, kPasses,          shape.dropout};
}
inline LayerNormBackward second_norm_backward(const DqnShape& shape, const DqnOffsets& o, const DqnWork& w) {
  return {w.preact2, w.out2,        w.inv_std2,        w.norm_out_grad2, w.preact_grad2,
          o.scale2,  shape.hidden2, shape.shard_batch, kPasses,          shape.dropout};
}

}  // namespace tandem::cuda
