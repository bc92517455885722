// kernels/gpu/gemm_warpgroup.h -- GEMM of a 64 x 64 block by one warpgroup with wgmma (Hopper only): the next slice is
// loaded and converted while the tensor cores multiply this one. The same bits as gemm.h.
//
// Two neighbouring K splits, a pair, are computed at the same time, a slice of each. A stays in registers (wgmma's A
// fragment), B goes to shared memory as hi and lo tf32 words, double-buffered. In bf16 and fp16 there is one wgmma
// instead of six and two elements share a word.
#pragma once

#include "kernels/gpu/gemm.h"

namespace tandem::cuda {

inline constexpr int kWarpgroupN = 2 * kTileColumns, kWarpgroupPlane = kPlaneWords<kWarpgroupN>;

struct WarpgroupMemory {
  static constexpr int kThreads = 128, kSliceWords = 2 * kTileColumns * kSliceK;  // of B, 64 columns
  struct Slice {
    alignas(128) uint32_t hi[kSliceWords], lo[kSliceWords];
  };
  Slice b[2][2];                        // [buffer][split of the pair]
  float pending[2][4 * kTileElements];  // sums of two splits, and of four, that wait for their right neighbour
};

#if defined(TANDEM_TENSOR_CORES)
// The A fragment of lane 4 g + t, one slice: k = 4 t to 4 t + 3 of fragment rows g and g + 8 of its warp's sixteen.
template <Layout layout>
struct FragmentA {
  float x[2][4];

  // Which of the warp's sixteen rows stands at a fragment row. K outer: neighbours in memory, for float2 loads.
  __device__ static int row(int fragment_row) {
    return layout == Layout::kKInner ? fragment_row : 2 * (fragment_row % 8) + fragment_row / 8;
  }
  // The address of a lane's first element, where the warp's rows begin at first_row and the slice at k = 0.
  __device__ static const float* lane_address(const Operand<layout>& operand, int first_row) {
    return operand.data + operand.offset(first_row + row(threadIdx.x % 32 / 4), threadIdx.x % 4 * 4);
  }
  // read(pointer to float4 or float2) does the load; `stride` is the operand's.
  template <class Read>
  __device__ void load(const float* src, int stride, Read read) {
    if constexpr (layout == Layout::kKInner) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float4 f = read(reinterpret_cast<const float4*>(src + 8 * i * stride));
        x[i][0] = f.x, x[i][1] = f.y, x[i][2] = f.z, x[i][3] = f.w;
      }
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float2 f = read(reinterpret_cast<const float2*>(src + c * stride));
        x[0][c] = f.x, x[1][c] = f.y;
      }
    }
  }
  // [k]: the A registers of the k-th tf32 instruction (its K is 8).
  __device__ void split(uint32_t (&hi)[2][4], uint32_t (&lo)[2][4]) const {
#pragma unroll
    for (int k = 0; k < 2; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Tf32Split split(x[i % 2][2 * k + i / 2]);
        hi[k][i] = split.hi;
        lo[k][i] = split.lo;
      }
  }
  __device__ void round(uint32_t (&a)[2][4]) const {
#pragma unroll
    for (int k = 0; k < 2; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) a[k][i] = to_tf32(x[i % 2][2 * k + i / 2]);
  }
  // The A registers of one 16-bit instruction (its K is 16).
  template <Precision precision>
  __device__ void pack(uint32_t (&a)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = pack_16bit<precision>(x[i % 2][i / 2 * 2], x[i % 2][i / 2 * 2 + 1]);
  }
};
#endif

#if defined(TANDEM_WGMMA)
// What a thread loads of a slice of B. K inner: lane 4 g + t of warp w has k = 4 t to 4 t + 3 of two columns. K outer:
// lane 8 t + g has four columns twice, so that eight lanes load one 128-byte line (lanes of a quarter warp on four
// lines took L1 four times as long).
//
// The two float4s of K outer: 32-bit words, columns 32 apart at k = 4 t + w; 16-bit, the same columns at two k from
// 4 t + 2 (w % 2) on, since these share a word (warps 2 and 3 have the other columns). In every case a warp's 32 stores
// hit 32 different banks.
template <Layout layout, bool k32Bit>
struct FragmentB {
  float4 x[2];

  // Which column of the block stands at position r of the n-th group of eight.
  __device__ static int column(int n, int r) {
    return layout == Layout::kKInner ? 8 * n + r : 4 * (n / 4 * 8 + r / 2 + r % 2 * 4) + n % 4;
  }
  __device__ static int warp() { return threadIdx.x / 32; }
  __device__ static int g() { return layout == Layout::kKInner ? threadIdx.x % 32 / 4 : threadIdx.x % 8; }
  __device__ static int t() { return layout == Layout::kKInner ? threadIdx.x % 4 : threadIdx.x % 32 / 8; }
  // The address of a thread's first float4, where the block's columns and the slice begin with the operand.
  __device__ static const float* thread_address(const Operand<layout>& operand) {
    if (layout == Layout::kKInner) return operand.data + operand.offset(column(2 * warp(), g()), 4 * t());
    if (k32Bit) return operand.data + operand.offset(column(0, g()), 4 * t() + warp());
    return operand.data + operand.offset(column(warp() / 2 * 4, g()), 4 * t() + warp() % 2 * 2);
  }
  __device__ void load(const float* src, int stride) {
    const int second = layout == Layout::kKInner ? 8 * stride : k32Bit ? kTileColumns : stride;
    x[0] = load_no_allocate(reinterpret_cast<const float4*>(src));
    x[1] = load_no_allocate(reinterpret_cast<const float4*>(src + second));
  }
  // To shared memory, in planes as wgmma_issue() wants them: hi and lo words.
  __device__ void split(WarpgroupMemory::Slice& dst) const {
    const int lane = 4 * g() + t();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float element[4] = {x[i].x, x[i].y, x[i].z, x[i].w};
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const Tf32Split split(element[c]);
        const int word = layout == Layout::kKInner ? c * kWarpgroupPlane + (2 * warp() + i) * 32 + lane
                                                   : warp() * kWarpgroupPlane + (4 * i + c) * 32 + lane;
        dst.hi[word] = split.hi;
        dst.lo[word] = split.lo;
      }
    }
  }
  // The same with two 16-bit elements to a word; `lo` is not used.
  template <Precision precision>
  __device__ void pack(WarpgroupMemory::Slice& dst) const {
    const int lane = 4 * g() + t();
    if constexpr (layout == Layout::kKInner) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        uint32_t* const word = dst.hi + (2 * warp() + i) * 32 + lane;
        word[0] = pack_16bit<precision>(x[i].x, x[i].y);
        word[kWarpgroupPlane] = pack_16bit<precision>(x[i].z, x[i].w);
      }
    } else {
      uint32_t* const word = dst.hi + warp() % 2 * kWarpgroupPlane + warp() / 2 * 4 * 32 + lane;
      word[0] = pack_16bit<precision>(x[0].x, x[1].x);
      word[32] = pack_16bit<precision>(x[0].y, x[1].y);
      word[64] = pack_16bit<precision>(x[0].z, x[1].z);
      word[96] = pack_16bit<precision>(x[0].w, x[1].w);
    }
  }
};

// As gemm_block() of 2 x 2 tiles. 128 threads; 64 kB of shared memory, so three blocks on an SM. Warps 0 and 1 have the
// upper tiles' rows, 2 and 3 the lower ones', sixteen each, with all 64 columns: acc[p][4 n ...] is split p of the
// pair, columns from 8 n on (wgmma_issue()).
//
// One function of more than 60 lines: its lambdas share pointers, fragments and accumulators that must stay in
// registers, and the order of loads, conversions and wgmmas is what makes it fast.
template <Precision precision, Layout a_layout, Layout b_layout, class A, class Epilogue>
__device__ void gemm_warpgroup(WarpgroupMemory& memory, A a_of, const Operand<b_layout>& b, const SplitK& split_k,
                               Epilogue epilogue) {
  static_assert(precision != Precision::kTf32);
  constexpr bool kHiLo = precision == Precision::kFp32;
  constexpr int kThreads = WarpgroupMemory::kThreads, kPairs = kSplitK / 2;
  using B = FragmentB<b_layout, kHiLo>;
  const int thread = threadIdx.x, tile = thread / 64, first_row = thread / 32 % 2 * 16;
  const Operand<a_layout> a = a_of(tile);
  const int slices = a.k_extent / split_k.k_step;  // of a split
  // Pointer steps: to the other split of the pair, to the next slice of a split, from its last slice to the next pair.
  const auto strides = [&](const auto& operand, int64_t offset, int& other_split, int& next_slice, int& next_pair) {
    other_split = static_cast<int>(offset + operand.offset(0, split_k.k_offset));
    next_slice = static_cast<int>(operand.offset(0, split_k.k_step));
    next_pair = 2 * other_split - (slices - 1) * next_slice;
  };
  int a_other_split, a_next_slice, a_next_pair, b_other_split, b_next_slice, b_next_pair;
  strides(a, split_k.a_offset, a_other_split, a_next_slice, a_next_pair);
  strides(b, split_k.b_offset, b_other_split, b_next_slice, b_next_pair);
  const int a_stride = static_cast<int>(a.stride), b_stride = static_cast<int>(b.stride);
  const float *a_src = FragmentA<a_layout>::lane_address(a, first_row), *b_src = B::thread_address(b);
  FragmentA<a_layout> x[2];
  B y[2];
  int to_load = kPairs * slices, loaded = 0;  // in slices of a pair of splits: left of all, loaded of this pair
  int buffer = 0;                             // of memory.b: the one that is multiplied
  const auto load = [&] {
    if (to_load <= 0) return;
#pragma unroll
    for (int p = 0; p < 2; ++p) {
      x[p].load(a_src + p * a_other_split, a_stride, [](const auto* src) { return load_no_allocate(src); });
      y[p].load(b_src + p * b_other_split, b_stride);
    }
    const bool last = ++loaded == slices;
    if (last) loaded = 0;
    a_src += last ? a_next_pair : a_next_slice;
    b_src += last ? b_next_pair : b_next_slice;
    --to_load;
  };
  uint32_t hi[2][2][4], lo[2][2][4], packed[2][4];  // A registers: the first two in fp32, else the last
  const auto convert_a = [&] {
#pragma unroll
    for (int p = 0; p < 2; ++p)
      if constexpr (kHiLo)
        x[p].split(hi[p], lo[p]);
      else
        x[p].template pack<precision>(packed[p]);
  };
  const auto convert_b = [&] {
#pragma unroll
    for (int p = 0; p < 2; ++p)
      if constexpr (kHiLo)
        y[p].split(memory.b[buffer][p]);
      else
        y[p].template pack<precision>(memory.b[buffer][p]);
  };
  float acc[2][32];
  // acc[0] waits in shared memory (is_right 0), or is added to what waits there. A thread's own values: no barrier.
  const auto store_or_add = [&](int is_right, float* sum) {
    float4* const stored = reinterpret_cast<float4*>(sum) + thread;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float* const s = acc[0] + 4 * i;
      if (is_right == 0) {
        stored[i * kThreads] = {s[0], s[1], s[2], s[3]};
      } else {
        const float4 left = stored[i * kThreads];
        s[0] = left.x + s[0], s[1] = left.y + s[1], s[2] = left.z + s[2], s[3] = left.w + s[3];
      }
    }
  };
  load();
  convert_b();
  convert_a();
  proxy_fence();  // before the next loads: it waits for outstanding ones
  load();
  int to_multiply = kPairs * slices;
#pragma unroll 1
  for (int pair = 0; pair < kPairs; ++pair) {
#pragma unroll
    for (int i = 0; i < 32; ++i) acc[0][i] = acc[1][i] = 0;
#pragma unroll 1
    for (int s = 0; s < slices; ++s) {
      __syncthreads();  // this buffer is written by all; every warp has waited for the wgmmas that read the other one
      if constexpr (kHiLo) {
        wgmma_fence(acc, hi, lo);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int p = i % 2, k = i / 2;
          const WgmmaOperandB b_hi(memory.b[buffer][p].hi), b_lo(memory.b[buffer][p].lo);
          const int plane = 2 * k * kWarpgroupPlane;
          wgmma_issue<kWarpgroupN>(acc[p], lo[p][k], b_hi, plane);
          wgmma_issue<kWarpgroupN>(acc[p], hi[p][k], b_lo, plane);
          wgmma_issue<kWarpgroupN>(acc[p], hi[p][k], b_hi, plane);
        }
      } else {
        wgmma_fence(acc, packed);
#pragma unroll
        for (int p = 0; p < 2; ++p)
          wgmma_issue<kWarpgroupN, precision>(acc[p], packed[p], WgmmaOperandB(memory.b[buffer][p].hi));
      }
      wgmma_commit();
      buffer ^= 1;
      const bool more = --to_multiply > 0;
      if (more) convert_b();
      if constexpr (kHiLo)
        wgmma_wait(acc, hi, lo);
      else
        wgmma_wait(acc, packed);
      if (more) convert_a();
      proxy_fence();
      load();
    }
    // The splits' sums, left + right: two, two of these, two of these.
#pragma unroll
    for (int i = 0; i < 32; ++i) acc[0][i] = acc[0][i] + acc[1][i];
    store_or_add(pair % 2, memory.pending[0]);
    if (pair % 2 == 1) store_or_add(pair / 2, memory.pending[1]);
  }
  const int g = thread % 32 / 4, t = thread % 4;
  const auto put = epilogue(tile);
  if constexpr (b_layout == Layout::kKInner) {
    // Two neighbouring lanes hold two of four neighbouring columns each, in two rows. They swap, so that each has a
    // float4 of one row.
    const bool second = t % 2 == 1;
    const int row = first_row + FragmentA<a_layout>::row(g + (second ? 8 : 0));
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float* const s = acc[0] + 4 * n;
      const float u = __shfl_xor_sync(kFullMask, second ? s[0] : s[2], 1);
      const float v = __shfl_xor_sync(kFullMask, second ? s[1] : s[3], 1);
      put(row, 8 * n + t / 2 * 4, second ? float4{u, v, s[2], s[3]} : float4{s[0], s[1], u, v});
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int r = i % 2, h = i / 2 % 2, n = i / 4 * 4;
      const float* const s = acc[0] + 4 * n + 2 * h + r;
      put(first_row + FragmentA<a_layout>::row(g + 8 * h), B::column(n, 2 * t + r), float4{s[0], s[4], s[8], s[12]});
    }
  }
}
#endif

}  // namespace tandem::cuda
