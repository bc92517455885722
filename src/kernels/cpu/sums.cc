#include "kernels/cpu/sums.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/cpu_dispatch.h"

namespace tandem {
namespace {

// A block of `out` that stays in L1 while all inputs are added to it: memory is read once per input and written once.
constexpr int64_t kBlock = 2048;

}  // namespace

void add_in_order(float* out, const float* const* inputs, int count, int64_t n, CpuVariant variant) {
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t length = std::min(kBlock, n - begin);
      float* o = out + begin;
      const float* first = inputs[0] + begin;
      int next = 1;
      if (count >= 3) {
        const float *second = inputs[1] + begin, *third = inputs[2] + begin;
        TANDEM_INDEPENDENT
        for (int64_t i = 0; i < length; ++i) o[i] = (first[i] + second[i]) + third[i];
        next = 3;
      } else if (count == 2) {
        const float* second = inputs[1] + begin;
        TANDEM_INDEPENDENT
        for (int64_t i = 0; i < length; ++i) o[i] = first[i] + second[i];
        next = 2;
      } else if (o != first) {
        std::copy(first, first + length, o);
      }
      for (; next + 1 < count; next += 2) {
        const float *a = inputs[next] + begin, *b = inputs[next + 1] + begin;
        TANDEM_INDEPENDENT
        for (int64_t i = 0; i < length; ++i) o[i] = (o[i] + a[i]) + b[i];
      }
      if (next < count) {
        const float* a = inputs[next] + begin;
        TANDEM_INDEPENDENT
        for (int64_t i = 0; i < length; ++i) o[i] = o[i] + a[i];
      }
    }
  });
}

void add_along_tree(float* out, std::span<const float* const> inputs, std::span<const int> merges, int64_t n,
                    CpuVariant variant) {
  constexpr int64_t kWidth = 256;
  std::vector<float> stack(merges.size() * kWidth);
  float* const first = stack.data();
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    for (int64_t begin = 0; begin < n; begin += kWidth) {
      const int64_t length = std::min(kWidth, n - begin);
      float* to = first;  // top of the stack
      for (size_t p = 0; p < merges.size(); ++p) {
        std::copy_n(inputs[p] + begin, length, to);
        for (int join = 0; join < merges[p]; ++join) {
          float* const left = to - kWidth;
          TANDEM_INDEPENDENT
          for (int64_t i = 0; i < length; ++i) left[i] = left[i] + to[i];
          to = left;
        }
        to += kWidth;
      }
      std::copy_n(first, length, out + begin);
    }
  });
}

void scale_add(float* y, float a, const float* x, int64_t n, CpuVariant variant) {
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    TANDEM_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) y[i] = y[i] + a * x[i];
  });
}

void scale(float* x, float a, int64_t n, CpuVariant variant) {
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    TANDEM_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) x[i] = a * x[i];
  });
}

void soft_update(float* target, const float* p, float tau, int64_t n, CpuVariant variant) {
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    TANDEM_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) target[i] = target[i] + tau * (p[i] - target[i]);
  });
}

}  // namespace tandem
