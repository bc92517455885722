// kernels/norm_pool_kernels.h -- batch norm, ReLU and a max pool over boxes in one pass over clips, channels last.
//
// Boxes do not overlap (stride = kernel, no padding) and have at most 8 places. What lies behind the last whole box
// counts in the statistics, as in layers one after the other. The normalised clips are never stored: forward keeps a
// code of 4 bits for each output, where its maximum was and whether it was above 0. Statistics are those of
// BatchNormKernels::statistics(); sums of backward run over outputs in the same order of lanes and blocks. CPU and CUDA
// give equal bits. On a GPU every call only queues work on `stream`.
#pragma once

#include <cstdint>

#include "kernels/batch_norm_kernels.h"
#include "kernels/portable.h"

namespace tandem {

struct NormPoolShape {
  int shards;
  int64_t clips, channels;  // clips of a shard
  int in[3], box[3];        // time, height, width
  FloatType type;           // of x, y and their gradients

  TANDEM_HD int out(int d) const { return in[d] / box[d]; }
  TANDEM_HD int box_places() const { return box[0] * box[1] * box[2]; }
  TANDEM_HD int64_t clip_in() const { return int64_t{in[0]} * in[1] * in[2]; }
  TANDEM_HD int64_t clip_out() const { return int64_t{out(0)} * out(1) * out(2); }
  TANDEM_HD int64_t code_words() const { return (channels + 7) / 8; }  // of an output place
  BatchNormShape inputs() const { return {shards, clips * clip_in(), channels, 1, type}; }
  BatchNormShape outputs() const { return {shards, clips * clip_out(), channels, 1, type}; }
};

inline constexpr int kMostBoxPlaces = 8;

struct NormPoolKernels {
  static constexpr KernelTableId kId{"norm pool", 1};
  static const NormPoolKernels& cpu();

  struct Given {
    const void* x;  // [shards, clips, time, height, width, channels]
    const float *mean, *inv_std, *weight, *bias;
  };
  // y [.., time', height', width', channels]; codes [places of y, code_words()], channel c in bits 4 (c % 8) on.
  void (*forward)(const NormPoolShape& shape, const Given& given, void* y, uint32_t* codes, void* stream);
  // scratch: batch_norm_scratch_floats(shape.outputs()).
  void (*backward_sums)(const NormPoolShape& shape, const Given& given, const void* y_grad, const uint32_t* codes,
                        float* weight_leaves, float* bias_leaves, float* scratch, void* stream);
  void (*backward)(const NormPoolShape& shape, const Given& given, const void* y_grad, const uint32_t* codes,
                   const float* weight_leaves, const float* bias_leaves, void* x_grad, void* stream);
};

namespace cuda {
const NormPoolKernels& norm_pool_kernels();
}

}  // namespace tandem
