// kernels/first_block_kernels.h -- the first block of a video model, in one pass each way: 3 x 3 x 3 convolution of one
// input channel (stride 1, padding 1, no bias), batch norm, ReLU, max pool of 1 x 2 x 2.
//
// The convolution's output, 30 times the input, is never stored, and statistics need none of it. With S_k the sum over
// places p of x[p + k] and A_jk that of x[p + j] x[p + k], for the 27 taps j and k, a channel of weights w has the mean
// sum_k w_k S_k / N and the second moment sum_jk w_j w_k A_jk / N. A_jk depends on k - j, but at the borders: 63
// products a place. The same A and S give backward all that the norm adds to the weight gradient; what is left of it is
// a sum over outputs at the places of their maxima. Products are float, added up in chains of up to 32, then in double.
//
// Order of sums: kernels/first_block_math.h; it follows from the shape of a shard alone. CPU and CUDA give equal bits.
// On a GPU every call only queues work on `stream`.
#pragma once

#include <cstdint>

#include "kernels/float_type.h"
#include "kernels/gpu/kernel_tables.h"
#include "kernels/portable.h"

namespace tandem {

inline constexpr int kTaps = 27, kMostFirstChannels = 64;
inline constexpr int kTapSums = kTaps * kTaps + kTaps;  // A row by row, then S

struct FirstBlockShape {
  int shards;
  int64_t clips;            // of a shard
  int channels;             // of the output, at most kMostFirstChannels
  int time, height, width;  // of the input, 2 or more each
  FloatType type;           // of x, y and y's gradient

  TANDEM_HD int64_t places() const { return clips * time * height * width; }  // of a shard
  TANDEM_HD int out_h() const { return height / 2; }
  TANDEM_HD int out_w() const { return width / 2; }
  TANDEM_HD int64_t clip_out() const { return int64_t{time} * out_h() * out_w(); }
  TANDEM_HD int code_words() const { return (channels + 7) / 8; }
};

// Doubles of the scratch memory that tap_sums() and gradient_sums() take.
int64_t first_block_scratch(const FirstBlockShape& shape);

struct FirstBlockKernels {
  static constexpr KernelTableId kId{"first block", 1};
  static const FirstBlockKernels& cpu();

  // x [shards, clips, time, height, width] -> sums [shards, kTapSums].
  void (*tap_sums)(const FirstBlockShape& shape, const void* x, double* sums, double* scratch, void* stream);
  // weight [channels, 27] -> the four tables of BatchNormKernels::statistics(), [shards, channels].
  void (*statistics)(const FirstBlockShape& shape, const double* sums, const float* weight, float eps, float share,
                     float* mean, float* inv_std, float* mean_leaves, float* var_leaves, void* stream);
  struct Norm {
    const float *weight, *mean, *inv_std, *scale, *shift;  // of the convolution; of batch norm
  };
  // y [shards, clips, time, out_h, out_w, channels], codes as in kernels/norm_pool_kernels.h.
  void (*forward)(const FirstBlockShape& shape, const void* x, const Norm& norm, void* y, uint32_t* codes,
                  void* stream);
  // gradients [shards, 28, channels]: that of each tap by what comes through the maxima, and of the shift.
  void (*gradient_sums)(const FirstBlockShape& shape, const void* x, const void* y_grad, const uint32_t* codes,
                        double* gradients, double* scratch, void* stream);
  // -> leaves [shards, channels, 27], and of scale and shift [shards, channels].
  void (*leaves)(const FirstBlockShape& shape, const double* sums, const double* gradients, const Norm& norm,
                 float* weight_leaves, float* scale_leaves, float* shift_leaves, void* stream);
};

namespace cuda {
const FirstBlockKernels& first_block_kernels();
}

}  // namespace tandem
