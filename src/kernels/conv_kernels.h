// kernels/conv_kernels.h -- what the weight gradient of a convolution needs beside its GEMM.
//
// The gradient of a weight [out, kernel_h, kernel_w, channels] is a GEMM over output places: y_grad [places, out]^T
// times columns [places, kernel_h * kernel_w * channels], where a row of `columns` holds the inputs that one output
// place saw (im2col). GEMMs of small weights have few tiles, so a shard's places are cut into chunks with a GEMM each,
// and the chunks are added in order. On a GPU every call only queues work on `stream`.
#pragma once

#include <cstdint>

#include "kernels/gpu/kernel_tables.h"

namespace tandem {

struct ConvShape {
  int64_t images, channels;
  int in_h, in_w, out_h, out_w;
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int element_bytes;  // 2 or 4

  int64_t places() const { return images * out_h * out_w; }
  // Of a row of columns: a multiple of 8, the last ones zero; tensor cores read rows 16 bytes at a time.
  int64_t columns() const { return (int64_t{kernel_h} * kernel_w * channels + 7) / 8 * 8; }
};

struct ConvKernels {
  static constexpr KernelTableId kId{"conv", 1};
  static const ConvKernels& cpu();

  // columns [count, shape.columns()] = those of the output places from `first` on (row by row, image by image). x is
  // channels last; padding is zero. `columns` begins at a multiple of 16 bytes.
  void (*columns)(const ConvShape& shape, const void* x, int64_t first, int64_t count, void* columns, void* stream);

  // Chunks [count, n] number first, first + 1, ... of all; a shard has `per_shard` of them. leaves [shards, n]: the
  // first chunk of a shard is written, the others are added in order.
  void (*add_chunks)(const float* chunks, int64_t first, int64_t count, int64_t per_shard, int64_t n, float* leaves,
                     void* stream);
};

namespace cuda {
const ConvKernels& conv_kernels();
}

}  // namespace tandem
