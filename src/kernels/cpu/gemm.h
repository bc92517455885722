// kernels/cpu/gemm.h -- matrix products of a small net on a CPU: a few dozen rows times weights that fit the caches.
//
// Each number of a result is one sum in one fixed order (by fused multiply-adds, from 0, in the order of the summed
// index), whatever rows and columns are beside it. So a row's bits do not depend on how many rows are in the call, and
// all variants with a fused multiply-add agree. A CPU without one (kPlain on x86) rounds twice where they round once:
// other bits, as the kind of the device says.
//
// Weights are put into panels of 32 columns first, once for all calls with the same weights: a library would do it in
// every call.
#pragma once

#include <cstdint>
#include <new>
#include <span>
#include <vector>

#include "kernels/cpu/cpu_variant.h"

namespace tandem {

inline constexpr int64_t kPanel = 32;

// Memory that begins at a whole line of the cache: a vector that lies across two is read twice.
template <class T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};
  LineAllocator() = default;
  template <class U>
  LineAllocator(const LineAllocator<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kLine)); }
  void deallocate(T* p, size_t) { ::operator delete(p, kLine); }
  bool operator==(const LineAllocator&) const { return true; }
};
using LineFloats = std::vector<float, LineAllocator<float>>;

// A matrix [depth, width] in panels: [ceil(width / 32)][depth][32], the last one filled up with zeros.
class Panels {
 public:
  void pack(const float* matrix, int64_t depth, int64_t width);             // row-major [depth, width]
  void pack_transposed(const float* matrix, int64_t depth, int64_t width);  // row-major [width, depth]
  const float* data() const { return data_.data(); }
  int64_t depth() const { return depth_; }
  int64_t width() const { return width_; }

 private:
  void shape(int64_t depth, int64_t width);
  int64_t depth_ = 0, width_ = 0;
  LineFloats data_;
};

// y = x m + bias (null: 0): x [rows, depth], m [depth, width], y [rows, width]; rows lie `x_stride` and `y_stride`
// apart.
void product(const float* x, int64_t x_stride, const Panels& m, const float* bias, float* y, int64_t y_stride,
             int64_t rows, CpuVariant variant = best_cpu_variant());

// sum = dy^T x: dy [rows, out], x [rows, in], sum [out, in], for a batch of several pieces of `rows` rows that follow
// each other: the pieces' products, each summed over its rows, are added along a tree. `merges`, one for each piece,
// says how many of the sums that wait are joined after it, as left + right (SumTree::merges). kAdd adds the whole to
// what is there. `room` is memory to work in, kept by the caller for the next call.
enum class Write { kSet, kAdd };
struct OuterRoom {
  LineFloats dy, x, waiting;
};
void outer_sums(const float* dy, int64_t dy_stride, const float* x, int64_t x_stride, float* sum, int64_t out,
                int64_t in, int64_t rows, std::span<const int> merges, Write write, OuterRoom& room,
                CpuVariant variant = best_cpu_variant());

}  // namespace tandem
