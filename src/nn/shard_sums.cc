#include "nn/shard_sums.h"

#include <torch/torch.h>

#include <stdexcept>

#include "kernels/tree_kernels.h"
#include "nn/kernel_choice.h"

namespace tandem {
namespace {

struct ShardSumsFunction : torch::autograd::Function<ShardSumsFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& values, const at::Tensor& weight,
                            int64_t shards) {
    ctx->save_for_backward({weight});
    ctx->saved_data["shards"] = shards;
    at::Tensor sums = at::empty({shards}, values.options());
    kernels_for<TreeKernels>(values).shard_sums(values.const_data_ptr<float>(), weight.const_data_ptr<float>(),
                                                static_cast<int>(shards), values.numel() / shards,
                                                sums.data_ptr<float>(), stream_for(values));
    return sums;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const at::Tensor weight = ctx->get_saved_variables()[0];
    const int64_t shards = ctx->saved_data["shards"].toInt();
    return {(weight.view({shards, -1}) * grads[0].view({shards, 1})).view({-1}), {}, {}};
  }
};

}  // namespace

at::Tensor shard_sums(const at::Tensor& values, const at::Tensor& weight, int shards) {
  if (values.dim() != 1 || values.scalar_type() != at::kFloat || values.size(0) % shards != 0 ||
      !weight.sizes().equals(values.sizes()))
    throw std::logic_error("sums over shards take a float and a weight for each row, and equal rows of each shard");
  return ShardSumsFunction::apply(values.contiguous(), weight.contiguous(), static_cast<int64_t>(shards));
}

}  // namespace tandem
