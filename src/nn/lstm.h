// nn/lstm.h -- a one-layer LSTM that runs several shards in one pass.
//
//     Lstm lstm(160, 256);
//     at::Tensor all = lstm(x);                                  // [rows, steps, 160] -> [rows, steps, 256]
//     at::Tensor last = all.select(1, all.size(1) - 1);          // [rows, 256]: after the whole sequence
// Sequences lie batch first and begin with a state of zeros. Parameters are torch::nn::LSTM's, in names, shapes, gate
// order (input, forget, cell, output) and first values (nn/init.h): weight_ih_l0 [4 hidden, in], weight_hh_l0
// [4 hidden, hidden], bias_ih_l0 and bias_hh_l0 [4 hidden]; each may be frozen. Every row has the bits that it has when
// its shard runs alone.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "nn/layer_context.h"

namespace tandem {

struct LstmOptions {
  int64_t in = 0, hidden = 0;
};

class LstmImpl : public torch::nn::Module, public ShardAware {
 public:
  LstmImpl(int64_t in, int64_t hidden) : LstmImpl(LstmOptions{.in = in, .hidden = hidden}) {}
  explicit LstmImpl(const LstmOptions& options);  // throws ConfigError for sizes below 1

  // [rows, steps, in] -> [rows, steps, hidden], the hidden state after each step. It runs in autocast's type where that
  // is on, the cell state in float. Throws ConfigError for another shape, for no steps, and for rows that do not divide
  // by the shards.
  at::Tensor forward(const at::Tensor& x);
  void pretty_print(std::ostream& stream) const override;

  LstmOptions options;
  at::Tensor weight_ih, weight_hh, bias_ih, bias_hh;

 private:
  friend struct LstmFunction;
};
TORCH_MODULE(Lstm);

}  // namespace tandem
