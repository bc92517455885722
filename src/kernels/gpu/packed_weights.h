// kernels/gpu/packed_weights.h -- weights in bf16 or fp16 in fragment order, kept beside the fp32 ones: the eight
// elements that a lane gives one mma lie together. fused_mlp.h reads them: half the bytes from L2, no conversion.
#pragma once

#include "kernels/gpu/block_choice.h"
#include "kernels/gpu/gemm.h"

namespace tandem::cuda {

// The A fragment of lane 4 g + t for a 16 x 16 block of weights: k = 4 t to 4 t + 3 of rows g and g + 8, as mma_16bit()
// takes it. A matrix [rows][k] is stored as [rows / 16][k / 16][lane].
struct PackedFragment {
  uint4 words;

  __device__ void unpack(uint32_t (&as)[4]) const {
    as[0] = words.x, as[1] = words.y, as[2] = words.z, as[3] = words.w;
  }
};
static_assert(sizeof(PackedFragment) == kPackedFragmentBytes);
__device__ inline PackedFragment load_no_allocate(const PackedFragment* from) {
  return {load_no_allocate(&from->words)};
}

#if defined(TANDEM_TENSOR_CORES)
// An fp32 matrix to be packed: element (i, k) lies at [i * row_stride + k * k_stride], one of which is 1 (the matrix,
// or its transpose for backward).
struct PackedSource {
  const float* from;
  int k, row_stride, k_stride;
  int first;  // its first fragment among those of all matrices
};

// Fragment number `at`.
template <Precision precision>
__device__ PackedFragment pack_fragment(const PackedSource& m, int at) {
  const int fragment = at - m.first, lane = fragment % 32, slices = m.k / kSliceK;
  const int strip = fragment / 32 / slices, slice = fragment / 32 - strip * slices;
  const float* const from =
      m.from + (strip * 16 + lane / 4) * m.row_stride + (slice * kSliceK + lane % 4 * 4) * m.k_stride;
  float x[2][4];
#pragma unroll
  for (int i = 0; i < 2; ++i)
    if (m.k_stride == 1) {
      const float4 four = *reinterpret_cast<const float4*>(from + 8 * i * m.row_stride);
      x[i][0] = four.x, x[i][1] = four.y, x[i][2] = four.z, x[i][3] = four.w;
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c) x[i][c] = from[8 * i + c * m.k_stride];
    }
  uint32_t word[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) word[i] = pack_16bit<precision>(x[i % 2][i / 2 * 2], x[i % 2][i / 2 * 2 + 1]);
  return {{word[0], word[1], word[2], word[3]}};
}
#endif

}  // namespace tandem::cuda
