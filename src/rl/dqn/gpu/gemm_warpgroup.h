// rl/dqn/gpu/gemm_warpgroup.h -- blocks of two tiles by two whose four warps multiply as one group (Hopper's
// alone): products go on while the next numbers are made ready. The same bits as those of single tiles.
//
// Two neighbouring parts are made at the same time, a slice of each. A thread fetches both factors' numbers ahead; of
// the left one they stay in its registers, halves of the right one go to shared memory, where the tensor cores find
// them. In bf16 and fp16 there is one product instead of six, and half a word to a number.
#pragma once

#include "rl/dqn/gpu/gemm_tiles.h"

namespace tandem::cuda {

inline constexpr int kGroupColumns = 2 * kTileColumns, kGroupPlane = kPlaneOf<kGroupColumns>;

struct GroupMemory {
  static constexpr int kThreads = 128, kHalves = 2 * kTileColumns * kSlice;  // of a slice of two tiles' factor
  struct Slice {
    alignas(128) uint32_t high[kHalves], low[kHalves];
  };
  Slice right[2][2];                                 // multiplied now and next; of the two parts
  float waits[2][2 * kTileRows * 2 * kTileColumns];  // of pairs of pairs of parts, and of pairs of these
};

#if defined(TANDEM_TENSOR_CORES)
// What a lane has of a slice of the left factor: numbers 4 t to 4 t + 3 of the rows at places g and g + 8 of its warp's
// sixteen (4 g + t is the lane).
template <Layout lies>
struct OwnLeft {
  float x[2][4];

  // Which of the warp's rows stands there.
  __device__ static int row(int place) { return lies == Layout::kKInner ? place : 2 * (place % 8) + place / 8; }
  // `from`: where the lane's first number lies.
  __device__ static const float* from(const Factor<lies>& f, int first_row) {
    return f.data + f.place_of(first_row + row(threadIdx.x % 32 / 4), threadIdx.x % 4 * 4);
  }
  // By read(a pointer to two or four numbers).
  template <class Read>
  __device__ void fetch(const float* from, int stride, Read read) {
    if constexpr (lies == Layout::kKInner) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float4 f = read(reinterpret_cast<const float4*>(from + 8 * i * stride));
        x[i][0] = f.x, x[i][1] = f.y, x[i][2] = f.z, x[i][3] = f.w;
      }
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float2 f = read(reinterpret_cast<const float2*>(from + c * stride));
        x[0][c] = f.x, x[1][c] = f.y;
      }
    }
  }
  // [k]: as multiply_add() wants the k-th eight of the depth.
  __device__ void split(uint32_t (&high)[2][4], uint32_t (&low)[2][4]) const {
#pragma unroll
    for (int k = 0; k < 2; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Split split(x[i % 2][2 * k + i / 2]);
        high[k][i] = split.high;
        low[k][i] = split.low;
      }
  }
  __device__ void round(uint32_t (&as)[2][4]) const {
#pragma unroll
    for (int k = 0; k < 2; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) as[k][i] = tf32_of(x[i % 2][2 * k + i / 2]);
  }
  // As multiply_add_halves() wants all sixteen.
  template <Precision precision>
  __device__ void halve(uint32_t (&as)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) as[i] = two_halves<precision>(x[i % 2][i / 2 * 2], x[i % 2][i / 2 * 2 + 1]);
  }
};
#endif

#if defined(TANDEM_GROUP_PRODUCTS)
// Of a slice of the right factor, by lane 4 g + t of warp w: numbers 4 t to 4 t + 3 of two columns; or, where depth is
// outside, by lane 8 t + g four columns' numbers two times. Eight lanes fetch what lies together, or a processor's
// cache takes four times as long to hand it out. Lanes put their halves into different banks.
//
// These two are, of numbers that are words, those of a tile's columns further at depth 4 t + w. Where two are a word,
// they are the same columns' at two depths, from 4 t + 2 (w % 2) on: warps 2 and 3 have the other columns.
template <Layout lies, bool kByWords>
struct OwnRight {
  float4 x[2];

  // Which column of the block stands at place r of the n-th eight.
  __device__ static int column(int n, int r) {
    return lies == Layout::kKInner ? 8 * n + r : 4 * (n / 4 * 8 + r / 2 + r % 2 * 4) + n % 4;
  }
  __device__ static int warp() { return threadIdx.x / 32; }
  __device__ static int g() { return lies == Layout::kKInner ? threadIdx.x % 32 / 4 : threadIdx.x % 8; }
  __device__ static int t() { return lies == Layout::kKInner ? threadIdx.x % 4 : threadIdx.x % 32 / 8; }
  __device__ static const float* from(const Factor<lies>& f) {
    if (lies == Layout::kKInner) return f.data + f.place_of(column(2 * warp(), g()), 4 * t());
    if (kByWords) return f.data + f.place_of(column(0, g()), 4 * t() + warp());
    return f.data + f.place_of(column(warp() / 2 * 4, g()), 4 * t() + warp() % 2 * 2);
  }
  __device__ void fetch(const float* from, int stride) {
    const int other = lies == Layout::kKInner ? 8 * stride : kByWords ? kTileColumns : stride;
    x[0] = read_once(reinterpret_cast<const float4*>(from));
    x[1] = read_once(reinterpret_cast<const float4*>(from + other));
  }
  __device__ void split(GroupMemory::Slice& to) const {
    const int lane = 4 * g() + t();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float of[4] = {x[i].x, x[i].y, x[i].z, x[i].w};
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const Split split(of[c]);
        const int at = lies == Layout::kKInner ? c * kGroupPlane + (2 * warp() + i) * 32 + lane
                                               : warp() * kGroupPlane + (4 * i + c) * 32 + lane;
        to.high[at] = split.high;
        to.low[at] = split.low;
      }
    }
  }
  template <Precision precision>
  __device__ void halve(GroupMemory::Slice& to) const {
    const int lane = 4 * g() + t();
    if constexpr (lies == Layout::kKInner) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        uint32_t* const at = to.high + (2 * warp() + i) * 32 + lane;
        at[0] = two_halves<precision>(x[i].x, x[i].y);
        at[kGroupPlane] = two_halves<precision>(x[i].z, x[i].w);
      }
    } else {
      uint32_t* const at = to.high + warp() % 2 * kGroupPlane + warp() / 2 * 4 * 32 + lane;
      at[0] = two_halves<precision>(x[0].x, x[1].x);
      at[32] = two_halves<precision>(x[0].y, x[1].y);
      at[64] = two_halves<precision>(x[0].z, x[1].z);
      at[96] = two_halves<precision>(x[0].w, x[1].w);
    }
  }
};

// As tile_products() of four tiles.
template <Precision precision, Layout a_lies, Layout b_lies, class A, class To>
__device__ void group_products(GroupMemory& memory, A a_of, const Factor<b_lies>& b, const Parts& parts, To to) {
  static_assert(precision != Precision::kTf32);
  constexpr bool kSplit = precision == Precision::kFp32;
  constexpr int kThreads = GroupMemory::kThreads, kPairs = kParts / 2;
  using Right = OwnRight<b_lies, kSplit>;
  const int thread = threadIdx.x, tile = thread / 64, first_row = thread / 32 % 2 * 16;
  const Factor<a_lies> a = a_of(tile);
  const int slices = a.depth / parts.step;  // of a part
  // How far it is in a factor's numbers to the other part, to a part's next slice, from its last one to the next pair.
  const auto strides = [&](const auto& factor, int64_t shift, int& other, int& next, int& pair) {
    other = static_cast<int>(shift + factor.place_of(0, parts.k_shift));
    next = static_cast<int>(factor.place_of(0, parts.step));
    pair = 2 * other - (slices - 1) * next;
  };
  int a_other, a_next, a_pair, b_other, b_next, b_pair;
  strides(a, parts.a_shift, a_other, a_next, a_pair);
  strides(b, parts.b_shift, b_other, b_next, b_pair);
  const int a_stride = static_cast<int>(a.stride), b_stride = static_cast<int>(b.stride);
  const float *a_from = OwnLeft<a_lies>::from(a, first_row), *b_from = Right::from(b);
  OwnLeft<a_lies> x[2];
  Right y[2];
  int to_fetch = kPairs * slices, fetched = 0, buffer = 0;
  const auto fetch = [&] {
    if (to_fetch <= 0) return;
#pragma unroll
    for (int p = 0; p < 2; ++p) {
      x[p].fetch(a_from + p * a_other, a_stride, [](const auto* from) { return read_once(from); });
      y[p].fetch(b_from + p * b_other, b_stride);
    }
    const bool last = ++fetched == slices;
    if (last) fetched = 0;
    a_from += last ? a_pair : a_next;
    b_from += last ? b_pair : b_next;
    --to_fetch;
  };
  uint32_t high[2][2][4], low[2][2][4], halves[2][4];  // of the left factor: the first two, or the last
  const auto split_left = [&] {
#pragma unroll
    for (int p = 0; p < 2; ++p)
      if constexpr (kSplit)
        x[p].split(high[p], low[p]);
      else
        x[p].template halve<precision>(halves[p]);
  };
  const auto split_right = [&] {
#pragma unroll
    for (int p = 0; p < 2; ++p)
      if constexpr (kSplit)
        y[p].split(memory.right[buffer][p]);
      else
        y[p].template halve<precision>(memory.right[buffer][p]);
  };
  float sums[2][32];
  const auto wait_or_add = [&](int number, float* there) {
    float4* const kept = reinterpret_cast<float4*>(there) + thread;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float* const s = sums[0] + 4 * i;
      if (number == 0) {
        kept[i * kThreads] = {s[0], s[1], s[2], s[3]};
      } else {
        const float4 before = kept[i * kThreads];
        s[0] = before.x + s[0], s[1] = before.y + s[1], s[2] = before.z + s[2], s[3] = before.w + s[3];
      }
    }
  };
  fetch();
  split_right();
  split_left();
  show_to_products();  // before the next are fetched: it waits for what is on its way
  fetch();
  int to_multiply = kPairs * slices;
#pragma unroll 1
  for (int pair = 0; pair < kPairs; ++pair) {
#pragma unroll
    for (int i = 0; i < 32; ++i) sums[0][i] = sums[1][i] = 0;
#pragma unroll 1
    for (int s = 0; s < slices; ++s) {
      __syncthreads();  // all halves are there, and nobody's products still read the others
      if constexpr (kSplit) {
        before_products(sums, high, low);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int p = i % 2, k = i / 2;
          const RightFactor b_high(memory.right[buffer][p].high), b_low(memory.right[buffer][p].low);
          const int plane = 2 * k * kGroupPlane;
          begin_product<kGroupColumns>(sums[p], low[p][k], b_high, plane);
          begin_product<kGroupColumns>(sums[p], high[p][k], b_low, plane);
          begin_product<kGroupColumns>(sums[p], high[p][k], b_high, plane);
        }
      } else {
        before_products(sums, halves);
#pragma unroll
        for (int p = 0; p < 2; ++p)
          begin_product<kGroupColumns, precision>(sums[p], halves[p], RightFactor(memory.right[buffer][p].high));
      }
      end_of_products();
      buffer ^= 1;
      const bool more = --to_multiply > 0;
      if (more) split_right();
      if constexpr (kSplit)
        wait_for_products(sums, high, low);
      else
        wait_for_products(sums, halves);
      if (more) split_left();
      show_to_products();
      fetch();
    }
    // Left + right: by pairs, of pairs, of these.
#pragma unroll
    for (int i = 0; i < 32; ++i) sums[0][i] = sums[0][i] + sums[1][i];
    wait_or_add(pair % 2, memory.waits[0]);
    if (pair % 2 == 1) wait_or_add(pair / 2, memory.waits[1]);
  }
  const int g = thread % 32 / 4, t = thread % 4;
  const auto target = to(tile);
  if constexpr (b_lies == Layout::kKInner) {
    // Two lanes have two numbers each of four in two rows: one takes the first row's, the other one the second's.
    const bool second = t % 2 == 1;
    const int row = first_row + OwnLeft<a_lies>::row(g + (second ? 8 : 0));
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float* const s = sums[0] + 4 * n;
      const float u = __shfl_xor_sync(kWholeWarp, second ? s[0] : s[2], 1);
      const float v = __shfl_xor_sync(kWholeWarp, second ? s[1] : s[3], 1);
      target(row, 8 * n + t / 2 * 4, second ? float4{u, v, s[2], s[3]} : float4{s[0], s[1], u, v});
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int r = i % 2, h = i / 2 % 2, n = i / 4 * 4;
      const float* const s = sums[0] + 4 * n + 2 * h + r;
      target(first_row + OwnLeft<a_lies>::row(g + 8 * h), Right::column(n, 2 * t + r), float4{s[0], s[4], s[8], s[12]});
    }
  }
}
#endif

}  // namespace tandem::cuda
