// nn/linear_gemm.h -- the GEMMs of a linear layer for the shards of a pass, on the CPU and on a GPU.
//
// Rows are those of `shards` shards, one after the other. A row's result does not depend on `shards`:
//   - GPU: cuBLASLt with one algorithm, chosen for the job's rows (kernels/gpu/linear_cublaslt.h);
//   - CPU, float, small weights: kernels/cpu/gemm.h, where a row is a chain of its own;
//   - CPU, all else: libtorch's GEMM for each shard, at the shard's own shape.
// Which of the two a CPU takes follows from the layer's size and type alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "kernels/gpu/linear_choice.h"
#include "nn/layer_context.h"

namespace tandem {

struct LinearPass {
  int64_t in = 0, out = 0;
  int64_t shard_rows = 0;
  int shards = 1, job_shards = 1;
  bool one_by_one = false;  // a call for each shard

  // `rows` in all; throws ConfigError if they don't divide by the shards of the pass.
  static LinearPass of(const ShardAware& layer, int64_t rows, int64_t in, int64_t out);
};

// What an algorithm is chosen by. It knows the job's shards, not the pass's.
LinearGemmShape linear_gemm_shape(GemmKind kind, const LinearPass& pass, FloatType type, bool tf32, bool bias);

// All tensors contiguous and of one type: x [rows, in], dy [rows, out], w [out, in], bias [out] or undefined.
at::Tensor linear_forward(const LinearPass& pass, const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias);
at::Tensor linear_input_gradient(const LinearPass& pass, const at::Tensor& dy, const at::Tensor& w);
at::Tensor linear_weight_leaves(const LinearPass& pass, const at::Tensor& dy,
                                const at::Tensor& x);                         // [shards, out, in]
at::Tensor linear_bias_leaves(const LinearPass& pass, const at::Tensor& dy);  // [shards, out]

// The GPU's choices of algorithms so far, one line each, for the run's record; none on a CPU. Forced before the first
// pass, they are taken again. Throws ConfigError for lines that this GPU can't follow.
std::vector<std::string> gemm_choices();
void force_gemm_choices(const std::vector<std::string>& lines);

}  // namespace tandem
