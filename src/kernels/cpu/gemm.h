// kernels/cpu/gemm.h -- fp32 GEMMs of a small net on a CPU: a few dozen rows times weights that fit the caches.
//
// y [m, n] = x [m, k] * w [k, n]. Each element of y is one chain of fused multiply-adds from 0, in the order of k,
// whatever rows and columns are in the same call. So a row's bits do not depend on the number of rows, and all variants
// with FMA agree. A CPU without FMA (kPlain on x86) rounds twice per term and has other bits: the kind of the device
// says so.
//
// The weight operand is packed into panels of 32 columns once per update and used by all calls until the next one; a
// BLAS would pack it in every call. Rows are packed by each call, into tiles as high as the register file allows.
#pragma once

#include <cstdint>
#include <new>
#include <span>
#include <vector>

#include "kernels/cpu/cpu_variant.h"

namespace tandem {

inline constexpr int64_t kPanel = 32;  // columns of a panel

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

// The right-hand operand [k, n] in panels: [ceil(n / 32)][k][32], padded with zeros.
class Panels {
 public:
  // Rows lie `stride` floats apart; 0: without gaps.
  void pack(const float* matrix, int64_t k, int64_t n, int64_t stride = 0);             // row-major [k, n]
  void pack_transposed(const float* matrix, int64_t k, int64_t n, int64_t stride = 0);  // row-major [n, k]
  const float* data() const { return data_.data(); }
  int64_t k() const { return k_; }
  int64_t n() const { return n_; }

 private:
  void shape(int64_t k, int64_t n);
  int64_t k_ = 0, n_ = 0;
  LineFloats data_;
};

enum class Write { kSet, kAdd };  // kAdd: what was there plus the result

// y = x w + bias (null: 0), or with kAdd y = y + x w: x [m, k], w [k, n], y [m, n]; rows lie `x_stride` and `y_stride`
// floats apart. There is no bias with kAdd.
void gemm(const float* x, int64_t x_stride, const Panels& w, const float* bias, float* y, int64_t y_stride, int64_t m,
          Write write = Write::kSet, CpuVariant variant = best_cpu_variant());

// x times several operands: it is packed once; their panels have one k.
struct GemmProduct {
  const Panels& w;
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t y_stride = 0;
  Write write = Write::kSet;
};
void gemms(const float* x, int64_t x_stride, std::span<const GemmProduct> operands, int64_t m,
           CpuVariant variant = best_cpu_variant());

// The weight gradient of a linear layer, w_grad = y_grad^T x: x [rows, in] is the layer's input, y_grad [rows, out] the
// gradient of its output, w_grad [out, in]. The batch holds several shards of `rows_per_shard` rows, one after the
// other; each shard's gradient is summed over its rows, then the shards' are added along a tree in registers. `merges`
// has one entry per shard: how many partial sums on the stack are merged after it, as left + right (SumTree::merges).
// `scratch` is kept by the caller for the next call.
struct WeightGradientScratch {
  LineFloats y_grad, x, stack;
};
void weight_gradient(const float* y_grad, int64_t y_grad_stride, const float* x, int64_t x_stride, float* w_grad,
                     int64_t out, int64_t in, int64_t rows_per_shard, std::span<const int> merges, Write write,
                     WeightGradientScratch& scratch, CpuVariant variant = best_cpu_variant());

// The same for several inputs with one y_grad, which is packed once: the input and the state of a recurrent layer.
struct GradientInput {
  const float* x = nullptr;  // [rows, in]
  int64_t x_stride = 0, in = 0;
  float* w_grad = nullptr;  // [out, in]
  // Above 0, row r of the input is row r - 1 of x, or 0 where (first_step + r) % steps is 0: what a recurrent layer
  // knew before each step.
  int64_t steps = 0, first_step = 0;
  int64_t w_stride = 0;  // of the rows of w_grad; 0: in
};
void weight_gradients(const float* y_grad, int64_t y_grad_stride, std::span<const GradientInput> inputs, int64_t out,
                      int64_t rows_per_shard, std::span<const int> merges, Write write, WeightGradientScratch& scratch,
                      CpuVariant variant = best_cpu_variant());

}  // namespace tandem
