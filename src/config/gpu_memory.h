// config/gpu_memory.h -- rules by which the engine uses a GPU's memory. Forecasts reckon with the same ones.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem {

// The copy of weights and optimizer to roll back to lies beside them up to this many bytes: copying so much on a GPU
// takes less than 0.1 ms. A larger one lies in pinned host memory: over PCIe it takes 5 ms and more, which a model of
// that size hardly notices once in `nan.rollback_every` steps, while on the GPU it would double the state.
inline constexpr int64_t kMostKeptOnGpu = int64_t{256} << 20;

// How many of a worker's shards run side by side: small ones leave most of a GPU idle, larger ones keep it busy by
// themselves. `vector_bytes`: what a shard contributes to the sum. Less of them where memory is short.
inline constexpr int64_t most_side_by_side(int64_t shards, int64_t vector_bytes) {
  constexpr int64_t kMostVectorBytes = int64_t{64} << 20, kMostBranches = 24;
  return std::clamp(std::min(shards, kMostVectorBytes / std::max<int64_t>(vector_bytes, 1)), int64_t{1}, kMostBranches);
}

}  // namespace tandem
