// kernels/gpu/mma.h -- tensor-core instructions: mma.sync of a warp, wgmma of a warpgroup, and cp.async.
//
// TANDEM_TENSOR_CORES is defined from sm_80 on, TANDEM_WGMMA on sm_90a. TANDEM_EMULATED_TENSOR_CORES and
// TANDEM_EMULATED_WARPGROUPS emulate them on the CPU, for tests. An emulated copy or wgmma completes as late as it may,
// or (async_completes_early) as early as it may: a missing wait or barrier gives wrong numbers in one of the two.
#pragma once

#include <cstdint>

#include "kernels/gpu/intrinsics.h"
#include "kernels/rounding.h"

namespace tandem::cuda {
// Words of one plane of wgmma's B operand (see wgmma_issue).
template <int kColumns>
inline constexpr int kPlaneWords = 4 * kColumns;
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

// c += a * b, 16 x 8, fragments as the instructions below have them; kPerWord elements to a word, element(word, i) is
// the i-th.
template <int kPerWord, class Element>
void emulated_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Element element) {
  static uint32_t a_of_lane[32][32][4], b_of_lane[32][32][2];  // [warp][lane]
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = 0; i < 4; ++i) a_of_lane[warp][lane][i] = a[i];
  b_of_lane[warp][lane][0] = b0;
  b_of_lane[warp][lane][1] = b1;
  __syncwarp();  // all lanes' fragments are there
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    double sum = c[i];
    for (int k = 0; k < 8 * kPerWord; ++k) {
      const int word = k / kPerWord;
      sum += element(a_of_lane[warp][row % 8 * 4 + word % 4][row / 8 + word / 4 * 2], k % kPerWord) *
             element(b_of_lane[warp][column * 4 + word % 4][word / 4], k % kPerWord);
    }
    c[i] = static_cast<float>(sum);
  }
  __syncwarp();  // all lanes have read them: the next mma may overwrite them
}

// m16n8k8, tf32: the upper 19 bits of a word count.
inline void mma_tf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emulated_mma<1>(c, a, b0, b1, [](uint32_t word, int) { return double{float_of(word & 0xFFFFE000u)}; });
}
inline uint32_t to_tf32(float x) { return bits_of(rounded(Precision::kTf32, x)); }

// m16n8k16, bf16 or fp16: a word holds two elements, the first in its lower half.
template <Precision precision>
uint16_t to_16bit(float x) {
  const uint32_t bits = bits_of(rounded(precision, x)), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
  if (precision == Precision::kBf16) return static_cast<uint16_t>(bits >> 16);
  if (magnitude >= 0x7F800000u) return static_cast<uint16_t>(sign | (magnitude > 0x7F800000u ? 0x7E00u : 0x7C00u));
  if (magnitude < 0x38800000u)
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(float_of(magnitude) * 0x1p24f));
  return static_cast<uint16_t>(sign | ((magnitude >> 13) - (112u << 10)));
}
template <Precision precision>
float from_16bit(uint16_t half) {
  if (precision == Precision::kBf16) return float_of(uint32_t{half} << 16);
  const uint32_t sign = uint32_t{half & 0x8000u} << 16, magnitude = half & 0x7FFFu;
  if (magnitude >= 0x7C00u) return float_of(sign | 0x7F800000u | (magnitude & 0x3FFu) << 13);
  if (magnitude < 0x400u) return float_of(sign | bits_of(static_cast<float>(magnitude) * 0x1p-24f));
  return float_of(sign | (magnitude + (112u << 10)) << 13);
}
template <Precision precision>
uint32_t pack_16bit(float first, float second) {
  return to_16bit<precision>(first) | uint32_t{to_16bit<precision>(second)} << 16;
}
template <Precision precision>
void mma_16bit(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emulated_mma<2>(c, a, b0, b1, [](uint32_t word, int i) {
    return double{from_16bit<precision>(static_cast<uint16_t>(word >> 16 * i))};
  });
}

template <Precision precision>
void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (precision == Precision::kTf32)
    mma_tf32(c, a, b0, b1);
  else
    mma_16bit<precision>(c, a, b0, b1);
}

struct EmulatedCopies {
  struct Copy {
    float* dst;
    float values[4];
  };
  std::vector<std::vector<Copy>> groups;
  std::vector<Copy> open;
};
inline std::map<int, EmulatedCopies> emulated_copies;  // by thread; empty once all groups were waited for
inline bool async_completes_early = false;             // copies and wgmma complete when issued

inline void cp_async(float* dst, const float* src) {
  if (async_completes_early)
    for (int i = 0; i < 4; ++i) dst[i] = src[i];
  emulated_copies[static_cast<int>(threadIdx.x)].open.push_back({dst, {src[0], src[1], src[2], src[3]}});
}
inline void cp_async_commit() {
  EmulatedCopies& copies = emulated_copies[static_cast<int>(threadIdx.x)];
  copies.groups.push_back(std::move(copies.open));
  copies.open.clear();
}
template <int kMaxPendingGroups>
void cp_async_wait() {
  EmulatedCopies& copies = emulated_copies[static_cast<int>(threadIdx.x)];
  while (static_cast<int>(copies.groups.size()) > kMaxPendingGroups) {
    for (const auto& copy : copies.groups.front())
      for (int i = 0; i < 4; ++i) copy.dst[i] = copy.values[i];
    copies.groups.erase(copies.groups.begin());
  }
}

#if defined(TANDEM_EMULATED_WARPGROUPS)
#define TANDEM_WGMMA
#endif
// Executed at wgmma_wait(), when shared memory is read too; or when issued.
inline std::map<int, std::vector<std::function<void()>>> issued_wgmma;  // by thread

struct WgmmaOperandB {
  const uint32_t* data;
  explicit WgmmaOperandB(const uint32_t* b) : data(b) {}
};
template <int kColumns, Precision precision = Precision::kTf32>
void wgmma_issue(float (&c)[kColumns / 2], const uint32_t (&a)[4], WgmmaOperandB operand, int first_word = 0) {
  const uint32_t* const b = operand.data + first_word;
  const auto multiply = [&c, &a, b] {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int n = 0; n < kColumns / 8; ++n) {
      const uint32_t* const columns = b + n * 32 + lane;
      float acc[4];
      for (int i = 0; i < 4; ++i) acc[i] = c[4 * n + i];
      mma<precision>(acc, a, columns[0], columns[kPlaneWords<kColumns>]);
      for (int i = 0; i < 4; ++i) c[4 * n + i] = acc[i];
    }
  };
  if (async_completes_early)
    multiply();
  else
    issued_wgmma[static_cast<int>(threadIdx.x)].push_back(multiply);
}
template <class... Kept>
void wgmma_fence(Kept&...) {}
inline void wgmma_commit() {}
template <class... Kept>
void wgmma_wait(Kept&...) {
  auto& issued = issued_wgmma[static_cast<int>(threadIdx.x)];
  for (const auto& multiply : issued) multiply();
  issued.clear();
}
inline void proxy_fence() {}

}  // namespace tandem::cuda

#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define TANDEM_TENSOR_CORES

namespace tandem::cuda {

__device__ inline uint32_t bits_of(float x) { return __float_as_uint(x); }
__device__ inline float float_of(uint32_t x) { return __uint_as_float(x); }

// m16n8k8, tf32 (the upper 19 bits of a word count), by a warp: c += a * b. Lane 4 g + t owns c at rows g and g + 8,
// columns 2 t and 2 t + 1; a at rows g and g + 8, k = t and t + 4; b at column g, k = t (b0) and t + 4 (b1).
__device__ inline void mma_tf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// As rounded(Precision::kTf32, x).
__device__ inline uint32_t to_tf32(float x) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

// Two elements in a word, the first in its lower half.
template <Precision precision>
__device__ uint32_t pack_16bit(float first, float second) {
  uint32_t word;
  if constexpr (precision == Precision::kBf16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
}
// m16n8k16, bf16 or fp16: the fragments of mma_tf32(), two neighbouring k to a word.
template <Precision precision>
__device__ void mma_16bit(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
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

template <Precision precision>
__device__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (precision == Precision::kTf32)
    mma_tf32(c, a, b0, b1);
  else
    mma_16bit<precision>(c, a, b0, b1);
}

// Sixteen bytes from global to shared memory; a thread's copies since its last cp_async_commit() are a group.
__device__ inline void cp_async(float* dst, const float* src) {
  const auto shared_dst = static_cast<unsigned>(__cvta_generic_to_shared(dst));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_dst), "l"(src) : "memory");
}
__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most kMaxPendingGroups of this thread's groups are pending.
template <int kMaxPendingGroups>
__device__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kMaxPendingGroups) : "memory");
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TANDEM_WGMMA
// m64n(kColumns)k8 in tf32, k16 in bf16 and fp16: c += a * b by a warpgroup, asynchronous until wgmma_wait(). The same
// bits as mma() (but for the sign of zeros). Warp w has rows 16 w to 16 w + 15 with mma()'s fragments of a and c; c[4 n
// ...] are columns from 8 n on. b lies in shared memory without swizzle: words 32 n to 32 n + 31 of a plane are the
// lanes' b0 of these columns, those of the next plane b1 (core matrices of 8 x 16 bytes). `first_word`: where the first
// of the two planes begins.
struct WgmmaOperandB {
  uint32_t start;  // matrix descriptor's start address, in units of 16 bytes
  __device__ explicit WgmmaOperandB(const uint32_t* b)
      : start(static_cast<uint32_t>(__cvta_generic_to_shared(b)) / 16) {}
};
template <int kColumns, Precision precision = Precision::kTf32>
__device__ void wgmma_issue(float (&c)[kColumns / 2], const uint32_t (&a)[4], WgmmaOperandB b, int first_word = 0) {
  static_assert(kColumns == 16 || kColumns == 24 || kColumns == 40 || kColumns == 64);
  static_assert(precision != Precision::kFp32, "3xTF32 issues three of these");
  // The descriptor's byte offsets, in units of 16 bytes: core matrices (128 bytes) follow each other along the columns
  // and are a plane apart along K.
  constexpr uint32_t kLeadingOffset = kPlaneWords<kColumns> * sizeof(uint32_t) / 16 << 16,
                     kStrideOffset = 32 * sizeof(uint32_t) / 16;
  const uint32_t descriptor_lo = b.start + (kLeadingOffset + first_word / 4);
  // The instruction: its shape and types; the asm operand numbers of c, a and b's descriptor; the last
  // immediates; then c. (The macros for each N make this function long.)
#define TANDEM_WGMMA_ASM(shape_and_types, c_operands, a_operands, b_operands, suffix, ...)                            \
  asm volatile("{\n.reg .b64 right;\nmov.b64 right, {" b_operands "};\nwgmma.mma_async.sync.aligned." shape_and_types \
               " {" c_operands "}, {" a_operands "}, right, 1, 1, 1" suffix ";\n}\n"                                  \
               : __VA_ARGS__                                                                                          \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(descriptor_lo), "n"(kStrideOffset))
#define TANDEM_ACC_16 "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7])
#define TANDEM_ACC_24 TANDEM_ACC_16, "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11])
#define TANDEM_ACC_32 TANDEM_ACC_24, "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15])
#define TANDEM_ACC_40 TANDEM_ACC_32, "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19])
#define TANDEM_ACC_64                                                                                       \
  TANDEM_ACC_40, "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), \
      "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
#define TANDEM_WGMMA_N16(k_and_types, suffix)                                                                      \
  TANDEM_WGMMA_ASM("m64n16" k_and_types, "%0, %1, %2, %3, %4, %5, %6, %7", "%8, %9, %10, %11", "%12, %13", suffix, \
                   TANDEM_ACC_16)
#define TANDEM_WGMMA_N24(k_and_types, suffix)                                                                      \
  TANDEM_WGMMA_ASM("m64n24" k_and_types, "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11", "%12, %13, %14, %15", \
                   "%16, %17", suffix, TANDEM_ACC_24)
#define TANDEM_WGMMA_N40(k_and_types, suffix)                                                                  \
  TANDEM_WGMMA_ASM("m64n40" k_and_types,                                                                       \
                   "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19", \
                   "%20, %21, %22, %23", "%24, %25", suffix, TANDEM_ACC_40)
#define TANDEM_WGMMA_N64(k_and_types, suffix)                                                                   \
  TANDEM_WGMMA_ASM("m64n64" k_and_types,                                                                        \
                   "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
                   "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31",                                \
                   "%32, %33, %34, %35", "%36, %37", suffix, TANDEM_ACC_64)
#define TANDEM_WGMMA_N(columns)                          \
  if constexpr (precision == Precision::kTf32)           \
    TANDEM_WGMMA_N##columns("k8.f32.tf32.tf32", "");     \
  else if constexpr (precision == Precision::kBf16)      \
    TANDEM_WGMMA_N##columns("k16.f32.bf16.bf16", ", 0"); \
  else                                                   \
    TANDEM_WGMMA_N##columns("k16.f32.f16.f16", ", 0")
  if constexpr (kColumns == 16) {
    TANDEM_WGMMA_N(16);
  } else if constexpr (kColumns == 24) {
    TANDEM_WGMMA_N(24);
  } else if constexpr (kColumns == 40) {
    TANDEM_WGMMA_N(40);
  } else {
    TANDEM_WGMMA_N(64);
  }
#undef TANDEM_WGMMA_N
#undef TANDEM_WGMMA_ASM
#undef TANDEM_ACC_16
#undef TANDEM_WGMMA_N16
#undef TANDEM_ACC_24
#undef TANDEM_WGMMA_N24
#undef TANDEM_ACC_32
#undef TANDEM_ACC_40
#undef TANDEM_WGMMA_N40
#undef TANDEM_ACC_64
#undef TANDEM_WGMMA_N64
}
// Registers of c and a belong to wgmma from wgmma_fence() to wgmma_wait(): the compiler must not move them, nor sink
// the conversion of a in between (it would serialize the wgmmas).
__device__ inline void pin_registers(float& x) { asm volatile("" : "+f"(x)::"memory"); }
__device__ inline void pin_registers(uint32_t& x) { asm volatile("" : "+r"(x)::"memory"); }
template <class T, int kCount>
__device__ void pin_registers(T (&x)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) pin_registers(x[i]);
}
template <class... Kept>
__device__ void wgmma_fence(Kept&... kept) {
  (pin_registers(kept), ...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
template <class... Kept>
__device__ void wgmma_wait(Kept&... kept) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  (pin_registers(kept), ...);
}
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Makes this thread's writes to shared memory visible to wgmma (the async proxy), after the next __syncthreads().
__device__ inline void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#else
// Without wgmma: the same by mma.sync, at once.
struct WgmmaOperandB {
  const uint32_t* data;
  __device__ explicit WgmmaOperandB(const uint32_t* b) : data(b) {}
};
template <int kColumns, Precision precision = Precision::kTf32>
__device__ void wgmma_issue(float (&c)[kColumns / 2], const uint32_t (&a)[4], WgmmaOperandB b, int first_word = 0) {
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n) {
    const uint32_t* const columns = b.data + first_word + n * 32 + threadIdx.x % 32;
    float acc[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[i] = c[4 * n + i];
    mma<precision>(acc, a, columns[0], columns[kPlaneWords<kColumns>]);
#pragma unroll
    for (int i = 0; i < 4; ++i) c[4 * n + i] = acc[i];
  }
}
template <class... Kept>
__device__ void wgmma_fence(Kept&...) {}
template <class... Kept>
__device__ void wgmma_wait(Kept&...) {}
__device__ inline void wgmma_commit() {}
__device__ inline void proxy_fence() {}
#endif

}  // namespace tandem::cuda
#endif
