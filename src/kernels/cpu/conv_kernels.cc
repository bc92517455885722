#include "kernels/conv_kernels.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_dispatch.h"

namespace tandem {
namespace {

void conv_columns(const ConvShape& s, const void* x, int64_t first, int64_t count, void* columns, void*) {
  const int64_t pixel = s.channels * s.element_bytes, row_bytes = s.columns() * s.element_bytes;
  const int64_t used = s.kernel_h * s.kernel_w * pixel;
  char* row = static_cast<char*>(columns);
  for (int64_t place = first; place < first + count; ++place, row += row_bytes) {
    const int64_t image = place / (s.out_h * s.out_w);
    const int h = static_cast<int>(place / s.out_w % s.out_h), w = static_cast<int>(place % s.out_w);
    char* to = row;
    for (int i = 0; i < s.kernel_h; ++i)
      for (int j = 0; j < s.kernel_w; ++j, to += pixel) {
        const int in_h = h * s.stride_h - s.pad_h + i * s.dilation_h,
                  in_w = w * s.stride_w - s.pad_w + j * s.dilation_w;
        if (in_h < 0 || in_h >= s.in_h || in_w < 0 || in_w >= s.in_w)
          std::memset(to, 0, static_cast<size_t>(pixel));
        else
          std::memcpy(to, static_cast<const char*>(x) + ((image * s.in_h + in_h) * s.in_w + in_w) * pixel,
                      static_cast<size_t>(pixel));
      }
    std::memset(to, 0, static_cast<size_t>(row_bytes - used));
  }
}

void add_chunks(const float* chunks, int64_t first, int64_t count, int64_t per_shard, int64_t n, float* leaves, void*) {
  run_variant(best_cpu_variant(), [=]() TANDEM_INLINE_LAMBDA {
    for (int64_t chunk = 0; chunk < count; ++chunk) {
      const float* const from = chunks + chunk * n;
      float* const to = leaves + (first + chunk) / per_shard * n;
      if ((first + chunk) % per_shard == 0) {
        std::copy_n(from, n, to);
      } else {
        TANDEM_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) to[i] = to[i] + from[i];
      }
    }
  });
}

}  // namespace

const ConvKernels& ConvKernels::cpu() {
  static const ConvKernels kernels{conv_columns, tandem::add_chunks};
  return kernels;
}

}  // namespace tandem
