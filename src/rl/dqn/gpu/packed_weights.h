// rl/dqn/gpu/packed_weights.h -- weights in bf16 or fp16, kept beside the fp32 ones in the order in which tensor cores
// take a left factor: what a lane has of sixteen rows, sixteen deep, lies together. cuda_dqn_rows.h multiplies by them:
// half the bytes come from outside, and nothing is converted on the way.
#pragma once

#include "kernels/gpu/mma.h"
#include "rl/dqn/dqn_gpu.h"
#include "rl/dqn/gpu/gemm_tiles.h"

namespace tandem::cuda {

// Lane 4 g + t's: numbers 4 t to 4 t + 3 of rows g and g + 8.
struct HalvesOfLane {
  uint4 words;

  // As multiply_add_halves() wants them.
  __device__ void give(uint32_t (&as)[4]) const { as[0] = words.x, as[1] = words.y, as[2] = words.z, as[3] = words.w; }
};
static_assert(sizeof(HalvesOfLane) == kHalvesBytes);
__device__ inline HalvesOfLane read_once(const HalvesOfLane* from) { return {read_once(&from->words)}; }

__device__ inline HalvesOfLane* halves_of(const DqnShape& shape, const DqnWork& work, int job) {
  return static_cast<HalvesOfLane*>(work.halves) + int64_t{job} * DqnHalves(shape).all;
}

#if defined(TANDEM_TENSOR_CORES)
// A left factor that is kept: element (i, k) lies at [i * of_row + k * of_depth].
struct KeptMatrix {
  const float* from;
  int depth, of_row, of_depth;
  int first;  // piece
};

// Which of a job's matrices piece `at` belongs to.
__device__ inline KeptMatrix kept_matrix(const DqnShape& shape, const DqnPlaces& places, const DqnJob& job, int at) {
  const DqnHalves kept(shape);
  const auto forward = [](const float* from, int depth, int first) { return KeptMatrix{from, depth, depth, 1, first}; };
  const auto back = [](const float* from, int rows, int depth, int first) {
    return KeptMatrix{from, depth, 1, rows, first};
  };
  if (at >= kept.back_heads) return back(job.net + places.heads, shape.narrow, 2 * shape.head, kept.back_heads);
  if (at >= kept.back2) return back(job.net + places.w2, shape.wide, shape.narrow, kept.back2);
  const int first = at < kept.of_net ? 0 : kept.of_net;
  const float* const net = first == 0 ? job.net : job.target;
  if (at - first < kept.w2) return forward(net + places.w1, shape.state, first + kept.w1);
  if (at - first < kept.heads) return forward(net + places.w2, shape.wide, first + kept.w2);
  return forward(net + places.heads, shape.narrow, first + kept.heads);
}

// The piece of a job's weights that is kept there.
template <Precision precision>
__device__ HalvesOfLane halves_at(const KeptMatrix& m, int at) {
  const int piece = at - m.first, lane = piece % 32, slices = m.depth / kSlice;
  const int strip = piece / 32 / slices, slice = piece / 32 - strip * slices;
  const float* const from = m.from + (strip * 16 + lane / 4) * m.of_row + (slice * kSlice + lane % 4 * 4) * m.of_depth;
  float x[2][4];
#pragma unroll
  for (int i = 0; i < 2; ++i)
    if (m.of_depth == 1) {
      const float4 four = *reinterpret_cast<const float4*>(from + 8 * i * m.of_row);
      x[i][0] = four.x, x[i][1] = four.y, x[i][2] = four.z, x[i][3] = four.w;
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c) x[i][c] = from[8 * i + c * m.of_depth];
    }
  uint32_t word[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) word[i] = two_halves<precision>(x[i % 2][i / 2 * 2], x[i % 2][i / 2 * 2 + 1]);
  return {{word[0], word[1], word[2], word[3]}};
}
#endif

// Pieces of a job's weights from `first` on, below `end`: one to a thread of the block.
__device__ inline void keep_pieces([[maybe_unused]] const DqnShape& shape, [[maybe_unused]] const DqnPlaces& places,
                                   [[maybe_unused]] const DqnWork& work, [[maybe_unused]] int job,
                                   [[maybe_unused]] int first, [[maybe_unused]] int end) {
#if defined(TANDEM_TENSOR_CORES)
  const int at = first + static_cast<int>(threadIdx.x);
  if (at >= end) return;
  const KeptMatrix matrix = kept_matrix(shape, places, work.jobs[job], at);
  halves_of(shape, work, job)[at] = shape.precision == Precision::kBf16 ? halves_at<Precision::kBf16>(matrix, at)
                                                                        : halves_at<Precision::kFp16>(matrix, at);
#endif
}

}  // namespace tandem::cuda
