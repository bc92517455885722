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

  __device__ void unpack(uint32_t (&a)[4]) const { a[0] = words.x, a[1] = words.y, a[2] = words.z, a[3] = words.w; }
};
static_assert(sizeof(PackedFragment) == kPackedFragmentBytes);
__device__ inline PackedFragment load_no_allocate(const PackedFragment* src) { return {load_no_allocate(&src->words)}; }

#if defined(TANDEM_TENSOR_CORES)
// An fp32 matrix to be packed: element (i, k) lies at [i * row_stride + k * k_stride], one of which is 1 (the matrix,
// or its transpose for backward).
struct PackedSource {
  const float* data;
  int k, row_stride, k_stride;  // k: the extent of K
  int first;                    // the index of its first fragment among those of all matrices
};

// The fragment with this index among those of all matrices; it must be one of `m`.
template <Precision precision>
__device__ PackedFragment pack_fragment(const PackedSource& m, int index) {
  const int fragment = index - m.first, lane = fragment % 32, slices = m.k / kSliceK;
  const int row_block = fragment / 32 / slices, slice = fragment / 32 - row_block * slices;
  const float* const src =
      m.data + (row_block * 16 + lane / 4) * m.row_stride + (slice * kSliceK + lane % 4 * 4) * m.k_stride;
  float x[2][4];
#pragma unroll
  for (int i = 0; i < 2; ++i)
    if (m.k_stride == 1) {
      const float4 f = *reinterpret_cast<const float4*>(src + 8 * i * m.row_stride);
      x[i][0] = f.x, x[i][1] = f.y, x[i][2] = f.z, x[i][3] = f.w;
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c) x[i][c] = src[8 * i + c * m.k_stride];
    }
  uint32_t word[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) word[i] = pack_16bit<precision>(x[i % 2][i / 2 * 2], x[i % 2][i / 2 * 2 + 1]);
  return {{word[0], word[1], word[2], word[3]}};
}
#endif

}  // namespace tandem::cuda
