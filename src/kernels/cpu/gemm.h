// kernels/cpu/gemm.h -- fp32 GEMMs of a small net on a CPU: a few dozen rows times weights that fit the caches.
//
// Each element of a result is one chain of fused multiply-adds from 0, in the order of k, whatever rows and columns are
// in the same call. So a row's bits do not depend on the number of rows, and all variants with FMA agree. A CPU without
// FMA (kPlain on x86) rounds twice per term and has other bits: the kind of the device says so.
//
// The weight operand is packed into panels of 32 columns once per update and used by all calls until the next one; a
// BLAS would pack it in every call.
#pragma once

#include <cstdint>
#include <new>
#include <span>
#include <vector>

#include "kernels/cpu/cpu_variant.h"

namespace tandem {

inline constexpr int64_t kPanel = 32;

// Memory aligned to a cache line: a vector load across two lines costs two loads.
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

// The right-hand operand [depth, width] (K x N) in panels: [ceil(width / 32)][depth][32], padded with zeros.
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
void gemm(const float* x, int64_t x_stride, const Panels& m, const float* bias, float* y, int64_t y_stride,
          int64_t rows, CpuVariant variant = best_cpu_variant());

// The weight gradient of a linear layer, dw = dy^T x: dy [rows, out], x [rows, in], dw [out, in]. The batch holds
// several shards of `rows` rows, one after the other; each shard's gradient is summed over its rows, then the shards'
// are added along a tree in registers. `merges` has one entry per shard: how many partial sums on the stack are merged
// after it, as left + right (SumTree::merges). kAdd accumulates into dw (beta = 1), kSet overwrites it. `scratch` is
// kept by the caller for the next call.
enum class Write { kSet, kAdd };
struct WeightGradientScratch {
  LineFloats dy, x, stack;
};
void weight_gradient(const float* dy, int64_t dy_stride, const float* x, int64_t x_stride, float* dw, int64_t out,
                     int64_t in, int64_t rows, std::span<const int> merges, Write write, WeightGradientScratch& scratch,
                     CpuVariant variant = best_cpu_variant());

}  // namespace tandem
