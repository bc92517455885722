// kernels/gpu/mma.h -- products of a warp on tensor cores, and copies to shared memory that are made
// meanwhile. Where a GPU has both, TANDEM_TENSOR_CORES is defined. TANDEM_EMULATED_TENSOR_CORES plays them on the CPU,
// for tests: a copy arrives as late as it may, so that whoever does not wait for it reads what was there before.
#pragma once

#include <cstdint>

#include "kernels/gpu/intrinsics.h"
#include "kernels/rounding.h"

namespace tandem::cuda {
// Words of a plane of begin_product()'s right factor.
template <int kColumns>
inline constexpr int kPlaneOf = 4 * kColumns;
}  // namespace tandem::cuda

#if defined(TANDEM_EMULATED_TENSOR_CORES)
#define TANDEM_TENSOR_CORES
#include <bit>
#include <functional>
#include <map>
#include <vector>

namespace tandem::cuda {

inline uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
inline float float_of(uint32_t x) { return std::bit_cast<float>(x); }

// c += a * b of 16 x 8 numbers by a warp, whose lanes hold them as the instructions below want it, so many to a word:
// number(word, i) is its i-th.
template <int kOfWord, class Number>
void multiply_emulated(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Number number) {
  static uint32_t left[32][32][4], right[32][32][2];  // [warp][lane]
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = 0; i < 4; ++i) left[warp][lane][i] = a[i];
  right[warp][lane][0] = b0;
  right[warp][lane][1] = b1;
  __syncwarp();
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    double sum = c[i];
    for (int k = 0; k < 8 * kOfWord; ++k) {
      const int word = k / kOfWord;
      sum += number(left[warp][row % 8 * 4 + word % 4][row / 8 + word / 4 * 2], k % kOfWord) *
             number(right[warp][column * 4 + word % 4][word / 4], k % kOfWord);
    }
    c[i] = static_cast<float>(sum);
  }
  __syncwarp();
}

// Eight deep, in tf32: the upper 19 bits count.
inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  multiply_emulated<1>(c, a, b0, b1, [](uint32_t word, int) { return double{float_of(word & 0xFFFFE000u)}; });
}
inline uint32_t tf32_of(float x) { return bits_of(rounded(Precision::kTf32, x)); }

// The same in bf16 or fp16, sixteen deep: a word holds two numbers, the first in its lower half.
template <Precision precision>
uint16_t half_of(float x) {
  const uint32_t bits = bits_of(rounded(precision, x)), sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
  if (precision == Precision::kBf16) return static_cast<uint16_t>(bits >> 16);
  if (size >= 0x7F800000u) return static_cast<uint16_t>(sign | (size > 0x7F800000u ? 0x7E00u : 0x7C00u));
  if (size < 0x38800000u) return static_cast<uint16_t>(sign | static_cast<uint32_t>(float_of(size) * 0x1p24f));
  return static_cast<uint16_t>(sign | ((size >> 13) - (112u << 10)));
}
template <Precision precision>
float float_of_half(uint16_t half) {
  if (precision == Precision::kBf16) return float_of(uint32_t{half} << 16);
  const uint32_t sign = uint32_t{half & 0x8000u} << 16, size = half & 0x7FFFu;
  if (size >= 0x7C00u) return float_of(sign | 0x7F800000u | (size & 0x3FFu) << 13);
  if (size < 0x400u) return float_of(sign | bits_of(static_cast<float>(size) * 0x1p-24f));
  return float_of(sign | (size + (112u << 10)) << 13);
}
template <Precision precision>
uint32_t two_halves(float first, float second) {
  return half_of<precision>(first) | uint32_t{half_of<precision>(second)} << 16;
}
template <Precision precision>
void multiply_add_halves(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  multiply_emulated<2>(c, a, b0, b1, [](uint32_t word, int i) {
    return double{float_of_half<precision>(static_cast<uint16_t>(word >> 16 * i))};
  });
}

template <Precision precision>
void multiply_of(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (precision == Precision::kTf32)
    multiply_add(c, a, b0, b1);
  else
    multiply_add_halves<precision>(c, a, b0, b1);
}

struct CopiesAhead {
  struct Copy {
    float* to;
    float numbers[4];
  };
  std::vector<std::vector<Copy>> stages;
  std::vector<Copy> open;
};
inline std::map<int, CopiesAhead> copies_ahead;  // of each thread; empty where a block has waited for all
inline bool copies_come_at_once = false;         // as early as they may: whoever still reads what was there sees it

inline void copy_ahead(float* to, const float* from) {
  if (copies_come_at_once)
    for (int i = 0; i < 4; ++i) to[i] = from[i];
  copies_ahead[static_cast<int>(threadIdx.x)].open.push_back({to, {from[0], from[1], from[2], from[3]}});
}
inline void end_of_stage() {
  CopiesAhead& mine = copies_ahead[static_cast<int>(threadIdx.x)];
  mine.stages.push_back(std::move(mine.open));
  mine.open.clear();
}
template <int kMayBeOpen>
void wait_for_stage() {
  CopiesAhead& mine = copies_ahead[static_cast<int>(threadIdx.x)];
  while (static_cast<int>(mine.stages.size()) > kMayBeOpen) {
    for (const auto& copy : mine.stages.front())
      for (int i = 0; i < 4; ++i) copy.to[i] = copy.numbers[i];
    mine.stages.erase(mine.stages.begin());
  }
}

#if defined(TANDEM_EMULATED_WARPGROUPS)
#define TANDEM_GROUP_PRODUCTS
#endif
// Made where they are waited for, as late as they may be, or at once. What is multiplied is read then.
inline std::map<int, std::vector<std::function<void()>>> begun_products;  // of each thread

struct RightFactor {
  const uint32_t* data;
  explicit RightFactor(const uint32_t* b) : data(b) {}
};
template <int kColumns, Precision precision = Precision::kTf32>
void begin_product(float (&c)[kColumns / 2], const uint32_t (&a)[4], RightFactor right, int first = 0) {
  const uint32_t* const b = right.data + first;
  const auto make = [&c, &a, b] {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int n = 0; n < kColumns / 8; ++n) {
      const uint32_t* const columns = b + n * 32 + lane;
      float sums[4];
      for (int i = 0; i < 4; ++i) sums[i] = c[4 * n + i];
      multiply_of<precision>(sums, a, columns[0], columns[kPlaneOf<kColumns>]);
      for (int i = 0; i < 4; ++i) c[4 * n + i] = sums[i];
    }
  };
  if (copies_come_at_once)
    make();
  else
    begun_products[static_cast<int>(threadIdx.x)].push_back(make);
}
template <class... Kept>
void before_products(Kept&...) {}
inline void end_of_products() {}
template <class... Kept>
void wait_for_products(Kept&...) {
  auto& begun = begun_products[static_cast<int>(threadIdx.x)];
  for (const auto& make : begun) make();
  begun.clear();
}
inline void show_to_products() {}

}  // namespace tandem::cuda

#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define TANDEM_TENSOR_CORES

namespace tandem::cuda {

__device__ inline uint32_t bits_of(float x) { return __float_as_uint(x); }
__device__ inline float float_of(uint32_t x) { return __uint_as_float(x); }

// c += a * b of 16 x 8 numbers, eight deep, in tf32 (the upper 19 bits count), by a warp.
__device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// rounding.h's tf32.
__device__ inline uint32_t tf32_of(float x) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

// Two numbers as halves of a word, the first in the lower one.
template <Precision precision>
__device__ uint32_t two_halves(float first, float second) {
  uint32_t word;
  if constexpr (precision == Precision::kBf16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
}
// multiply_add() in bf16 or fp16, sixteen deep.
template <Precision precision>
__device__ void multiply_add_halves(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (precision == Precision::kBf16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// One of these.
template <Precision precision>
__device__ void multiply_of(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (precision == Precision::kTf32)
    multiply_add(c, a, b0, b1);
  else
    multiply_add_halves<precision>(c, a, b0, b1);
}

// Sixteen bytes to shared memory; a thread's copies since its last end_of_stage() are a stage.
__device__ inline void copy_ahead(float* to, const float* from) {
  const auto there = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(there), "l"(from) : "memory");
}
__device__ inline void end_of_stage() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until no more than so many of this thread's stages are still on their way.
template <int kMayBeOpen>
__device__ void wait_for_stage() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kMayBeOpen) : "memory");
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TANDEM_GROUP_PRODUCTS
// c += a * b of 64 x kColumns numbers by four warps, in tf32 eight deep, in halves sixteen; begun, and there once it is
// waited for. The same bits as multiply_of()'s. A warp has sixteen of the rows, as that one's: c[4 n ...] is its
// columns from 8 n on. The right factor lies in shared memory: the n-th 32 words of a plane are what lanes give
// multiply_of() for these columns as b0, the next plane's as b1.
struct RightFactor {
  uint32_t at;  // in units of 16 bytes
  __device__ explicit RightFactor(const uint32_t* b) : at(static_cast<uint32_t>(__cvta_generic_to_shared(b)) / 16) {}
};
template <int kColumns, Precision precision = Precision::kTf32>
__device__ void begin_product(float (&c)[kColumns / 2], const uint32_t (&a)[4], RightFactor b, int first = 0) {
  static_assert(kColumns == 16 || kColumns == 24 || kColumns == 32 || kColumns == 40 || kColumns == 64);
  static_assert(precision != Precision::kFp32, "made of products of tf32");
  // Blocks of 8 x 4 words, 128 bytes each, lie along the columns one after the other and along the depth a plane apart:
  // in units of 16 bytes, beside where the first one is.
  constexpr uint32_t kAlongDepth = kPlaneOf<kColumns> * sizeof(uint32_t) / 16 << 16,
                     kAlongColumns = 32 * sizeof(uint32_t) / 16;
  const uint32_t right = b.at + (kAlongDepth + first / 4);
  // The instruction of so many columns: which operands are sums, the left factor, the right one; and the sums.
#define TANDEM_GROUP_PRODUCT(depth_and_kinds, sums, left, right_at, last, ...)                                      \
  asm volatile("{\n.reg .b64 right;\nmov.b64 right, {" right_at "};\nwgmma.mma_async.sync.aligned." depth_and_kinds \
               " {" sums "}, {" left "}, right, 1, 1, 1" last ";\n}\n"                                              \
               : __VA_ARGS__                                                                                        \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(right), "n"(kAlongColumns))
#define TANDEM_SUMS_16 "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7])
#define TANDEM_SUMS_24 TANDEM_SUMS_16, "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11])
#define TANDEM_SUMS_32 TANDEM_SUMS_24, "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15])
#define TANDEM_SUMS_40 TANDEM_SUMS_32, "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19])
#define TANDEM_SUMS_64                                                                                       \
  TANDEM_SUMS_40, "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), \
      "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
#define TANDEM_OF_16(kind, last)                                                                              \
  TANDEM_GROUP_PRODUCT("m64n16" kind, "%0, %1, %2, %3, %4, %5, %6, %7", "%8, %9, %10, %11", "%12, %13", last, \
                       TANDEM_SUMS_16)
#define TANDEM_OF_24(kind, last)                                                                                \
  TANDEM_GROUP_PRODUCT("m64n24" kind, "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11", "%12, %13, %14, %15", \
                       "%16, %17", last, TANDEM_SUMS_24)
#define TANDEM_OF_32(kind, last)                                                                              \
  TANDEM_GROUP_PRODUCT("m64n32" kind, "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15", \
                       "%16, %17, %18, %19", "%20, %21", last, TANDEM_SUMS_32)
#define TANDEM_OF_40(kind, last)                                                                                   \
  TANDEM_GROUP_PRODUCT("m64n40" kind,                                                                              \
                       "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19", \
                       "%20, %21, %22, %23", "%24, %25", last, TANDEM_SUMS_40)
#define TANDEM_OF_64(kind, last)                                                                                    \
  TANDEM_GROUP_PRODUCT("m64n64" kind,                                                                               \
                       "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
                       "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31",                                \
                       "%32, %33, %34, %35", "%36, %37", last, TANDEM_SUMS_64)
#define TANDEM_OF(columns)                           \
  if constexpr (precision == Precision::kTf32)       \
    TANDEM_OF_##columns("k8.f32.tf32.tf32", "");     \
  else if constexpr (precision == Precision::kBf16)  \
    TANDEM_OF_##columns("k16.f32.bf16.bf16", ", 0"); \
  else                                               \
    TANDEM_OF_##columns("k16.f32.f16.f16", ", 0")
  if constexpr (kColumns == 16) {
    TANDEM_OF(16);
  } else if constexpr (kColumns == 24) {
    TANDEM_OF(24);
  } else if constexpr (kColumns == 32) {
    TANDEM_OF(32);
  } else if constexpr (kColumns == 40) {
    TANDEM_OF(40);
  } else {
    TANDEM_OF(64);
  }
#undef TANDEM_OF
#undef TANDEM_GROUP_PRODUCT
#undef TANDEM_SUMS_16
#undef TANDEM_OF_16
#undef TANDEM_SUMS_24
#undef TANDEM_OF_24
#undef TANDEM_SUMS_32
#undef TANDEM_OF_32
#undef TANDEM_SUMS_40
#undef TANDEM_OF_40
#undef TANDEM_SUMS_64
#undef TANDEM_OF_64
}
// Nothing is done with the sums and the left factor's halves from before_products() to wait_for_products(): the
// compiler must not move them elsewhere, nor what makes the halves to in between.
__device__ inline void leave_in_place(float& x) { asm volatile("" : "+f"(x)::"memory"); }
__device__ inline void leave_in_place(uint32_t& x) { asm volatile("" : "+r"(x)::"memory"); }
template <class T, int kCount>
__device__ void leave_in_place(T (&x)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) leave_in_place(x[i]);
}
template <class... Kept>
__device__ void before_products(Kept&... kept) {
  (leave_in_place(kept), ...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
template <class... Kept>
__device__ void wait_for_products(Kept&... kept) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  (leave_in_place(kept), ...);
}
__device__ inline void end_of_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// What this thread has put into shared memory is for products to see, after the next __syncthreads().
__device__ inline void show_to_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#else
// The same, made at once by warps that multiply for themselves.
struct RightFactor {
  const uint32_t* data;
  __device__ explicit RightFactor(const uint32_t* b) : data(b) {}
};
template <int kColumns, Precision precision = Precision::kTf32>
__device__ void begin_product(float (&c)[kColumns / 2], const uint32_t (&a)[4], RightFactor b, int first = 0) {
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n) {
    const uint32_t* const columns = b.data + first + n * 32 + threadIdx.x % 32;
    float sums[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = c[4 * n + i];
    multiply_of<precision>(sums, a, columns[0], columns[kPlaneOf<kColumns>]);
#pragma unroll
    for (int i = 0; i < 4; ++i) c[4 * n + i] = sums[i];
  }
}
template <class... Kept>
__device__ void before_products(Kept&...) {}
template <class... Kept>
__device__ void wait_for_products(Kept&...) {}
__device__ inline void end_of_products() {}
__device__ inline void show_to_products() {}
#endif

}  // namespace tandem::cuda
#endif
