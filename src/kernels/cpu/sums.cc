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
  constexpr int64_t kChunk = 256;  // elements that go through the stack at a time: it stays in L1
  std::vector<float> stack(merges.size() * kChunk);
  float* const stack_begin = stack.data();
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    for (int64_t begin = 0; begin < n; begin += kChunk) {
      const int64_t length = std::min(kChunk, n - begin);
      float* top = stack_begin;
      for (size_t input = 0; input < merges.size(); ++input) {
        std::copy_n(inputs[input] + begin, length, top);
        for (int merge = 0; merge < merges[input]; ++merge) {
          float* const left = top - kChunk;
          TANDEM_INDEPENDENT
          for (int64_t i = 0; i < length; ++i) left[i] = left[i] + top[i];
          top = left;
        }
        top += kChunk;
      }
      std::copy_n(stack_begin, length, out + begin);
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
