// kernels/pool_kernels.h -- pools over images: maximum and mean of windows, mean of the whole image.
//
// Gradients are gathered: each input adds up, in window order, what the windows that contain it give. So no sum depends
// on the order in which threads run. CPU and CUDA give equal bits, channels-last and contiguous memory too. On a GPU
// every call only queues work on `stream`.
#pragma once

#include <cstdint>

#include "kernels/float_type.h"
#include "kernels/gpu/kernel_tables.h"

namespace tandem {

// Images x [images, channels, in_h, in_w] -> y [images, channels, out_h, out_w], channels last or contiguous.
struct PoolShape {
  int64_t images, channels;
  int in_h, in_w, out_h, out_w;
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
  bool channels_last;
  bool count_padding;  // the mean's divisor is the whole window, else what of it lies in the image
  FloatType type;
};

inline constexpr int kMaxPoolWindow = 256;  // places of a window: where the maximum was is kept in a byte

struct PoolKernels {
  static constexpr KernelTableId kId{"pool", 1};
  static const PoolKernels& cpu();

  // places: for each y, which place of the window has it. The first of equal ones, row by row; NaN counts as larger.
  void (*max)(const PoolShape& shape, const void* x, void* y, uint8_t* places, void* stream);
  void (*max_gradient)(const PoolShape& shape, const void* y_grad, const uint8_t* places, void* x_grad, void* stream);
  void (*mean)(const PoolShape& shape, const void* x, void* y, void* stream);
  void (*mean_gradient)(const PoolShape& shape, const void* y_grad, void* x_grad, void* stream);
  // y [images, channels]: the mean over in_h x in_w, in 8 lanes that are then halved. Only images, channels, in_h,
  // in_w, channels_last and type count.
  void (*image_mean)(const PoolShape& shape, const void* x, void* y, void* stream);
  void (*image_mean_gradient)(const PoolShape& shape, const void* y_grad, void* x_grad, void* stream);
};

namespace cuda {
const PoolKernels& pool_kernels();
}

}  // namespace tandem
