// kernels/portable.h -- what lets one line of arithmetic compile for the CPU and for CUDA and give the same bits.
//
// The promise of this folder: a kernel and its CUDA twin give equal bits for every input that is not NaN (the payload
// of a NaN differs between makers). It rests on four rules, kept by every file here but the GEMMs,
// which use FMA on purpose (cpu/gemm.h, gpu/gemm.h):
//   - only + - * / sqrt and conversions, which IEEE 754 rounds exactly; no libm, whose last bit differs by version;
//   - no fused multiply-add that the compiler chooses (-ffp-contract=off for g++, --fmad=false for nvcc): where one is
//     written out (gelu_math.h), both sides have it;
//   - sums run in an order that the code fixes (explicit lanes), never in one that the vector width or the grid fixes;
//   - subnormals are kept: no -ffast-math, no --use_fast_math, no FTZ.
#pragma once

#if defined(__CUDACC__)
#define TANDEM_HD __host__ __device__ __forceinline__
// The same, out of line: instruction-cache misses stall a GPU, so cold paths are not inlined at every use.
#define TANDEM_HD_NOINLINE __host__ __device__ __noinline__ static
#else
#define TANDEM_HD inline __attribute__((always_inline))
#define TANDEM_HD_NOINLINE TANDEM_HD
#endif
