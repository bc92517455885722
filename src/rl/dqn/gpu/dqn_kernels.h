// rl/dqn/gpu/dqn_kernels.h -- between the files of the DQN's kernels.
#pragma once

#include "rl/dqn/dqn_gpu.h"

namespace tandem::cuda {

inline constexpr int kNormWarps = 4;                    // rows of a block, a warp each
inline constexpr int kMostFours = kMostGpuWidth / 128;  // float4s of a row that a lane holds

// Forward of the rows that are drawn: those learned from, with dropout, leave what the way back needs.
void queue_forward(const DqnShape& shape, const DqnPlaces& places, const DqnWork& work, CUstream_st* stream);
// What the environments do next, from what they show.
void queue_decisions(const DqnShape& shape, const DqnPlaces& places, const DqnWork& work, CUstream_st* stream);
// Both with all layers of a row by one block, where that suits; false: not queued.
bool queue_fused_forward(const DqnShape& shape, const DqnPlaces& places, const DqnWork& work, CUstream_st* stream);
bool queue_fused_decisions(const DqnShape& shape, const DqnPlaces& places, const DqnWork& work, CUstream_st* stream);
// From the heads' gradient to that of the first layer's sums, in the same way; for weights in halves alone.
bool queue_fused_backward(const DqnShape& shape, const DqnPlaces& places, const DqnWork& work, CUstream_st* stream);
// Whether one of these three would be queued, and with weights in halves.
bool takes_halves(const DqnShape& shape, const DqnPlaces& places, const DqnWork& work);

}  // namespace tandem::cuda
