// nn/attention.h -- scaled dot-product attention whose rows keep their bits whatever shards stand in the same pass.
//
// Which kernel serves is a function of lengths, head size, type, mask and dropout, never of the number of rows:
//   - flash, for bf16 and fp16 without a mask. Its deterministic backward splits the keys by the number of SMs and of
//     heads in the batch, so a small batch is padded to kPaddedHeads heads: one split, on every GPU of up to as many
//     SMs. Up to 128 keys (256 for heads of up to 64) the split changes nothing, and nothing is padded;
//   - memory-efficient, with a mask and for float: its backward does not split with num_splits_key = 1;
//   - math, at the shape of one shard, for each shard: on the CPU, with dropout, and for head sizes that the others
//     refuse. It stores the weights [rows, heads, T, T]. Short heads in float go through kernels/cpu/short_attention.h.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <optional>

#include "kernels/random_source.h"
#include "nn/layer_context.h"

namespace tandem {

// kCudnnFlash: forward by cuDNN, backward by flash.
enum class AttentionKernel { kFlash, kCudnnFlash, kEfficient, kMath };

struct AttentionOptions {
  bool causal = false;                                   // row t attends to keys 0 to t
  double dropout = 0;                                    // of the weights; needs a key in forward()
  std::optional<double> scale = std::nullopt;            // else 1 / sqrt(head size)
  std::optional<AttentionKernel> kernel = std::nullopt;  // for measurements: this one, where a GPU runs
};

inline constexpr int64_t kPaddedHeads = 264;  // heads times batch, at least; no GPU has more SMs

// What decides. Lengths are in tokens.
struct AttentionShape {
  bool gpu = false, half = false, masked = false, dropout = false;
  int64_t queries = 0, keys = 0, head_size = 0;
};
AttentionKernel choose_attention(const AttentionShape& shape);
// The batch that flash is run with, at least `batch`.
int64_t padded_batch_forward(int64_t batch, int64_t heads, const AttentionShape& shape);
int64_t padded_batch_backward(int64_t batch, int64_t heads, const AttentionShape& shape);

class AttentionImpl : public torch::nn::Module, public ShardAware {
 public:
  explicit AttentionImpl(const AttentionOptions& options = {});  // throws ConfigError for a dropout outside [0, 1]

  // q, k, v: [rows, heads, T, head size] -> the same shape. They may be strided views, such as parts of one projection.
  // mask: bool [rows, T of the keys], true = attend; every row has a key to attend to. Throws ConfigError for a mask of
  // another size or type, for rows that do not divide by the shards, and for dropout without a key.
  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask = {},
                     const std::optional<RandomSource>& key = {});
  // The same for self-attention out of one projection: [rows, T, 3, heads, head size] -> [rows, T, heads * head size].
  at::Tensor forward_packed(const at::Tensor& qkv, const at::Tensor& mask = {},
                            const std::optional<RandomSource>& key = {});

  AttentionOptions options;

 private:
  friend struct AttentionFunction;
  void refuse_bad_input(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask,
                        bool has_key) const;
  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool packed, const at::Tensor& mask,
                    const std::optional<RandomSource>& key);
};
TORCH_MODULE(Attention);

}  // namespace tandem
