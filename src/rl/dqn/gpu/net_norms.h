// rl/dqn/gpu/net_norms.h -- the two layer norms of the dueling net: where their rows and weights lie.
#pragma once

#include "kernels/gpu/layer_norm.h"
#include "rl/dqn/dqn_gpu.h"

namespace tandem::cuda {

static_assert(kMostGpuWidth <= kMostNormWidth);
inline constexpr int kPasses = 3;  // of a row that is learned from: by it, by the next state, by the target network

inline LayerNorm first_norm(const DqnShape& shape, const DqnOffsets& o, const DqnWork& w, int passes, int rows,
                            bool learning) {
  return {w.sums1, w.out1, w.inv_std1, o.scale1, o.shift1, passes, rows, shape.hidden1, learning, kDropout};
}
inline LayerNorm second_norm(const DqnShape& shape, const DqnOffsets& o, const DqnWork& w, int passes, int rows,
                             bool learning) {
  return {w.sums2, w.out2, w.inv_std2, o.scale2, o.shift2, passes, rows, shape.hidden2, learning, kDropout + 1};
}
inline LayerNormBackward first_norm_backward(const DqnShape& shape, const DqnOffsets& o, const DqnWork& w) {
  return {w.sums1,  w.out1,        w.inv_std1,        w.dz1,   w.dx1,
          o.scale1, shape.hidden1, shape.shard_batch, kPasses, shape.dropout};
}
inline LayerNormBackward second_norm_backward(const DqnShape& shape, const DqnOffsets& o, const DqnWork& w) {
  return {w.sums2,  w.out2,        w.inv_std2,        w.dz2,   w.dx2,
          o.scale2, shape.hidden2, shape.shard_batch, kPasses, shape.dropout};
}

}  // namespace tandem::cuda
