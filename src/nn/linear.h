// nn/linear.h -- a linear layer that runs several shards in one pass, with GELU on top if wanted.
//
//     Linear(768, 768)
//     Linear(LinearOptions{.in = 768, .out = 3072, .gelu = GeluForm::kTanh})     // as in GPT-2; kErf: as in BERT
// Parameters are torch::nn::Linear's: weight [out, in], bias [out]; so are their first values (nn/init.h). The weight
// may be tied (nn/tie_weights.h) and either may be frozen. Every row has the bits that it has when its shard runs
// alone.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <optional>

#include "kernels/gelu_math.h"
#include "nn/layer_context.h"

namespace tandem {

struct LinearOptions {
  int64_t in = 0, out = 0;
  bool bias = true;
  std::optional<GeluForm> gelu = std::nullopt;
};

class LinearImpl : public torch::nn::Module, public ShardAware {
 public:
  LinearImpl(int64_t in, int64_t out) : LinearImpl(LinearOptions{.in = in, .out = out}) {}
  explicit LinearImpl(const LinearOptions& options);  // throws ConfigError for sizes below 1

  // [..., in] -> [..., out]; the first dimension has the rows of the pass's shards. It runs in autocast's type where
  // that is on. Throws ConfigError for another last dimension, and for rows that do not divide by the shards.
  at::Tensor forward(const at::Tensor& x);
  void pretty_print(std::ostream& stream) const override;

  LinearOptions options;
  at::Tensor weight, bias;  // bias: undefined without one

 private:
  friend struct LinearFunction;
};
TORCH_MODULE(Linear);

}  // namespace tandem
