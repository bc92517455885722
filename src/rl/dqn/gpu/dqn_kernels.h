// rl/dqn/gpu/dqn_kernels.h -- what the files of the DQN's kernels call of each other.
#pragma once

#include "kernels/gpu/intrinsics.h"
#include "rl/dqn/dqn_gpu.h"

namespace tandem::cuda {

// A sum before did not end: there is nothing to be read yet.
__device__ inline bool is_held(const DqnWork& work) { return work.hold && *work.hold == 0; }

inline constexpr int kNormWarps = 4;  // rows of a norm's block, a warp each

// Forward of the drawn rows: those learned from, with dropout, keep what backward needs.
void queue_forward(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work, CUstream_st* stream);
// The next action of every environment, from its observation.
void queue_decisions(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work, CUstream_st* stream);
// Both as a fused MLP, where that is faster; false: not queued.
bool queue_fused_forward(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work, CUstream_st* stream);
bool queue_fused_decisions(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work, CUstream_st* stream);
// Backward from the gradient of the head features to that of the first layer's pre-activations, in the same way; with
// packed weights only.
bool queue_fused_backward(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work, CUstream_st* stream);
// Whether one of these three would be queued, and with packed weights.
bool uses_packed_weights(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work);

}  // namespace tandem::cuda
