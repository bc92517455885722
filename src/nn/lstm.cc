#include "nn/lstm.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include "base/errors.h"
#include "kernels/cpu/lstm_sequence.h"
#include "kernels/lstm_kernels.h"
#include "nn/kernel_choice.h"
#include "nn/linear_gemm.h"
#include "nn/shard_rows.h"

namespace tandem {
namespace {

// A pass over sequences: [rows, steps, ...], rows of `shards` shards. Its GEMMs see each shard as shard_rows x steps
// rows where a sequence is at hand as a whole, and as shard_rows where it goes step by step.
struct LstmPass {
  int64_t in = 0, hidden = 0, shard_rows = 0, steps = 0;
  int shards = 1, job_shards = 1;
  bool one_by_one = false;

  static LstmPass of(const LstmImpl& layer, const at::Tensor& x) {
    const LinearPass rows = LinearPass::of(layer, x.size(0), 1, 1);
    return {layer.options.in, layer.options.hidden, rows.shard_rows, x.size(1),
            rows.shards,      rows.job_shards,      rows.one_by_one};
  }
  int64_t rows() const { return shard_rows * shards; }
  LinearPass whole_input() const { return {in, 4 * hidden, shard_rows * steps, shards, job_shards, one_by_one}; }
  LinearPass whole_hidden() const { return {hidden, 4 * hidden, shard_rows * steps, shards, job_shards, one_by_one}; }
  LinearPass step_hidden() const { return {hidden, 4 * hidden, shard_rows, shards, job_shards, one_by_one}; }
};

// [rows, steps, ...], contiguous: where step t of its first row is.
char* step_of(const at::Tensor& sequence, int64_t t) {
  return static_cast<char*>(sequence.data_ptr()) + t * sequence.size(2) * sequence.element_size();
}

// Weights up to this many numbers, in fp32 on a CPU, go through kernels/cpu/lstm_sequence.h: packed they fit the L2
// cache of a CPU of today. Like the choice in linear_gemm.h it follows from the layer's size and type alone.
constexpr int64_t kOwnSequenceNumbers = 1 << 20;
bool by_own_sequence(const LstmPass& pass, const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kFloat &&
         4 * pass.hidden * (pass.in + pass.hidden) <= kOwnSequenceNumbers;
}
LstmSequenceScratch& lstm_scratch() {
  static thread_local LstmSequenceScratch scratch;
  return scratch;
}

// What forward gives: the hidden states, and what backward needs.
struct LstmStates {
  at::Tensor out;    // [rows, steps, hidden]
  at::Tensor gates;  // [rows, steps, 4 hidden], activated
  at::Tensor cells;  // [rows, steps, hidden], float; [rows, 1, hidden], the last ones, where no backward comes
};

LstmStates lstm_states(const LstmPass& pass, const at::Tensor& x, const at::Tensor& w_ih, const at::Tensor& w_hh,
                       const at::Tensor& bias, bool for_backward) {
  const int64_t rows = pass.rows(), steps = pass.steps, hidden = pass.hidden;
  LstmStates s;
  if (by_own_sequence(pass, x)) {
    s = {at::empty({rows, steps, hidden}, x.options()), at::empty({rows, steps, 4 * hidden}, x.options()),
         at::empty({rows, for_backward ? steps : 0, hidden}, x.options())};
    lstm_forward({.rows = rows,
                  .steps = steps,
                  .in = pass.in,
                  .hidden = hidden,
                  .x = x.const_data_ptr<float>(),
                  .weight_ih = w_ih.const_data_ptr<float>(),
                  .weight_hh = w_hh.const_data_ptr<float>(),
                  .bias = bias.const_data_ptr<float>(),
                  .gates = s.gates.data_ptr<float>(),
                  .cells = for_backward ? s.cells.data_ptr<float>() : nullptr,
                  .out = s.out.data_ptr<float>()},
                 lstm_scratch());
    return s;
  }
  s.gates = linear_forward(pass.whole_input(), x, w_ih, bias).view({rows, steps, 4 * hidden});
  s.out = at::empty({rows, steps, hidden}, x.options());
  s.cells = at::empty({rows, for_backward ? steps : 1, hidden}, x.options().dtype(at::kFloat));
  const at::Tensor last = at::empty({rows, hidden}, x.options());
  const LstmKernels& kernels = kernels_for<LstmKernels>(x);
  at::Tensor recurrent;
  for (int64_t t = 0; t < steps; ++t) {
    if (t > 0) recurrent = linear_forward(pass.step_hidden(), last, w_hh, {});
    const auto cell = [&](int64_t step) { return reinterpret_cast<float*>(step_of(s.cells, for_backward ? step : 0)); };
    kernels.forward({.rows = rows,
                     .hidden = hidden,
                     .type = float_type(x),
                     .gates = step_of(s.gates, t),
                     .gates_stride = s.gates.stride(0),
                     .recurrent = t > 0 ? recurrent.const_data_ptr() : nullptr,
                     .cell_before = t > 0 ? cell(t - 1) : nullptr,
                     .cell_before_stride = s.cells.stride(0),
                     .cell = cell(t),
                     .cell_stride = s.cells.stride(0),
                     .out = step_of(s.out, t),
                     .out_stride = s.out.stride(0),
                     .out_copy = t + 1 < steps ? last.data_ptr() : nullptr},
                    stream_for(x));
  }
  return s;
}

// What backward gives: the gradients of the gates before their activation, [rows * steps, 4 hidden], and of x, [rows *
// steps, in], where w_ih is defined.
struct LstmRowGradients {
  at::Tensor gates, x;
};

LstmRowGradients own_sequence_gradients(const LstmPass& pass, const LstmStates& s, const at::Tensor& out_grad,
                                        const at::Tensor& w_ih, const at::Tensor& w_hh) {
  const int64_t all = pass.rows() * pass.steps;
  LstmRowGradients found{at::empty({all, 4 * pass.hidden}, s.gates.options()), {}};
  if (w_ih.defined()) found.x = at::empty({all, pass.in}, s.gates.options());
  lstm_backward({.rows = pass.rows(),
                 .steps = pass.steps,
                 .in = pass.in,
                 .hidden = pass.hidden,
                 .gates = s.gates.const_data_ptr<float>(),
                 .cells = s.cells.const_data_ptr<float>(),
                 .out_grad = out_grad.const_data_ptr<float>(),
                 .weight_ih = w_ih.defined() ? w_ih.const_data_ptr<float>() : nullptr,
                 .weight_hh = w_hh.const_data_ptr<float>(),
                 .gates_grad = found.gates.data_ptr<float>(),
                 .x_grad = found.x.defined() ? found.x.data_ptr<float>() : nullptr},
                lstm_scratch());
  return found;
}

LstmRowGradients lstm_row_gradients(const LstmPass& pass, const LstmStates& s, const at::Tensor& out_grad,
                                    const at::Tensor& w_ih, const at::Tensor& w_hh) {
  if (by_own_sequence(pass, s.gates)) return own_sequence_gradients(pass, s, out_grad, w_ih, w_hh);
  const int64_t rows = pass.rows(), steps = pass.steps, hidden = pass.hidden;
  at::Tensor grads = at::empty_like(s.gates), cell_grad = at::empty({rows, hidden}, s.cells.options());
  const at::Tensor step_grads = at::empty({rows, 4 * hidden}, s.gates.options());
  const LstmKernels& kernels = kernels_for<LstmKernels>(s.gates);
  at::Tensor hidden_grad;
  for (int64_t t = steps - 1; t >= 0; --t) {
    const auto cell = [&](int64_t step) { return reinterpret_cast<const float*>(step_of(s.cells, step)); };
    kernels.backward({.rows = rows,
                      .hidden = hidden,
                      .type = float_type(s.gates),
                      .gates = step_of(s.gates, t),
                      .gates_stride = s.gates.stride(0),
                      .cell = cell(t),
                      .cell_before = t > 0 ? cell(t - 1) : nullptr,
                      .cell_stride = s.cells.stride(0),
                      .out_grad = step_of(out_grad, t),
                      .out_grad_stride = out_grad.stride(0),
                      .hidden_grad = hidden_grad.defined() ? hidden_grad.const_data_ptr() : nullptr,
                      .cell_grad = cell_grad.data_ptr<float>(),
                      .gates_grad = step_of(grads, t),
                      .gates_grad_stride = grads.stride(0),
                      .gates_grad_copy = t > 0 ? step_grads.data_ptr() : nullptr},
                     stream_for(s.gates));
    if (t > 0) hidden_grad = linear_input_gradient(pass.step_hidden(), step_grads, w_hh);
  }
  grads = grads.view({rows * steps, 4 * hidden});
  return {grads, w_ih.defined() ? linear_input_gradient(pass.whole_input(), grads, w_ih) : at::Tensor()};
}

// Those that are not wanted stay undefined; the others are [shards, 4 hidden, in] and [shards, 4 hidden, hidden].
struct LstmWeightLeaves {
  at::Tensor ih, hh;
};

LstmWeightLeaves own_sequence_leaves(const LstmPass& pass, const at::Tensor& gate_grads, const at::Tensor& x,
                                     const at::Tensor& out, bool want_ih, bool want_hh) {
  LstmWeightLeaves leaves;
  if (want_ih) leaves.ih = at::empty({pass.shards, 4 * pass.hidden, pass.in}, out.options());
  if (want_hh) leaves.hh = at::empty({pass.shards, 4 * pass.hidden, pass.hidden}, out.options());
  const int64_t all = pass.shard_rows * pass.steps;
  for (int64_t shard = 0; shard < pass.shards; ++shard)
    lstm_weight_leaves({.rows = pass.shard_rows,
                        .steps = pass.steps,
                        .in = pass.in,
                        .hidden = pass.hidden,
                        .gates_grad = gate_grads.const_data_ptr<float>() + shard * all * 4 * pass.hidden,
                        .x = want_ih ? x.const_data_ptr<float>() + shard * all * pass.in : nullptr,
                        .out = out.const_data_ptr<float>() + shard * all * pass.hidden,
                        .leaf_ih = want_ih ? leaves.ih[shard].data_ptr<float>() : nullptr,
                        .leaf_hh = want_hh ? leaves.hh[shard].data_ptr<float>() : nullptr},
                       lstm_scratch());
  return leaves;
}

// [rows * steps, hidden]: the hidden states that each step began with.
at::Tensor states_before(const at::Tensor& out) {
  const int64_t steps = out.size(1);
  at::Tensor before = at::empty_like(out);
  before.select(1, 0).zero_();
  before.narrow(1, 1, steps - 1).copy_(out.narrow(1, 0, steps - 1));
  return before.view({-1, out.size(2)});
}

LstmWeightLeaves weight_leaves(const LstmPass& pass, const at::Tensor& gate_grads, const at::Tensor& x,
                               const at::Tensor& out, bool want_ih, bool want_hh) {
  if (by_own_sequence(pass, out)) return own_sequence_leaves(pass, gate_grads, x, out, want_ih, want_hh);
  LstmWeightLeaves leaves;
  if (want_hh) leaves.hh = linear_weight_leaves(pass.whole_hidden(), gate_grads, states_before(out));
  if (want_ih) leaves.ih = linear_weight_leaves(pass.whole_input(), gate_grads, x);
  return leaves;
}

}  // namespace

struct LstmFunction : torch::autograd::Function<LstmFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x_in, const at::Tensor& weight_ih,
                            const at::Tensor& weight_hh, const at::Tensor& bias_ih, const at::Tensor& bias_hh,
                            bool for_backward, LstmImpl* layer) {
    const at::ScalarType type = compute_type(x_in);
    const WithoutAutocast plain;
    const LstmPass pass = LstmPass::of(*layer, x_in);
    const at::Tensor x = x_in.to(type).contiguous().view({-1, pass.in});
    const at::Tensor w_ih = weight_ih.to(type).contiguous(), w_hh = weight_hh.to(type).contiguous();
    const LstmStates s = lstm_states(pass, x, w_ih, w_hh, (bias_ih + bias_hh).to(type), for_backward);
    if (for_backward) {
      ctx->save_for_backward({weight_ih.requires_grad() ? x : at::Tensor(), x_in.requires_grad() ? w_ih : at::Tensor(),
                              w_hh, s.out, s.gates, s.cells});
      ctx->saved_data["layer"] = reinterpret_cast<int64_t>(layer);
      ctx->saved_data["sums"] = reinterpret_cast<int64_t>(layer->pass().sums);
      ctx->saved_data["shards"] = pass.shards;
      ctx->saved_data["job shards"] = pass.job_shards;
      ctx->saved_data["x type"] = static_cast<int64_t>(x_in.scalar_type());
    }
    return s.out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const WithoutAutocast plain;
    auto* const layer = reinterpret_cast<LstmImpl*>(ctx->saved_data["layer"].toInt());
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &w_ih = saved[1], &w_hh = saved[2];
    const LstmStates s{saved[3], saved[4], saved[5]};
    LstmPass pass{layer->options.in, layer->options.hidden, 0, s.out.size(1), 1, 1, layer->one_by_one()};
    pass.shards = static_cast<int>(ctx->saved_data["shards"].toInt());
    pass.job_shards = static_cast<int>(ctx->saved_data["job shards"].toInt());
    pass.shard_rows = s.out.size(0) / pass.shards;
    layer->trace("gradient of the output", grads[0]);
    const LstmRowGradients found = lstm_row_gradients(pass, s, grads[0].contiguous(), w_ih, w_hh);
    const at::Tensor& dgates = found.gates;

    at::Tensor weight_ih_grad, weight_hh_grad, bias_ih_grad, bias_hh_grad, dx;
    if (layer->bias_ih.requires_grad() || layer->bias_hh.requires_grad()) {
      // Both biases are added to the same sum. Leaves may be overwritten by who takes them, so each has its own.
      const at::Tensor leaves = linear_bias_leaves(pass.whole_input(), dgates);
      if (layer->bias_hh.requires_grad()) bias_hh_grad = give_leaves(ctx, layer->bias_hh, leaves.clone());
      if (layer->bias_ih.requires_grad()) bias_ih_grad = give_leaves(ctx, layer->bias_ih, leaves);
    }
    const bool want_ih = x.defined(), want_hh = layer->weight_hh.requires_grad();
    const LstmWeightLeaves leaves = weight_leaves(pass, dgates, x, s.out, want_ih, want_hh);
    if (want_hh) weight_hh_grad = give_leaves(ctx, layer->weight_hh, leaves.hh);
    if (want_ih) weight_ih_grad = give_leaves(ctx, layer->weight_ih, leaves.ih);
    if (ctx->needs_input_grad(0)) {
      dx = found.x.view({s.out.size(0), pass.steps, pass.in});
      dx = dx.to(static_cast<at::ScalarType>(ctx->saved_data["x type"].toInt()));
      layer->trace("gradient of the input", dx);
    }
    return {dx, weight_ih_grad, weight_hh_grad, bias_ih_grad, bias_hh_grad, {}, {}};
  }

 private:
  // To the sums, or without these to autograd: then there is one shard.
  static at::Tensor give_leaves(torch::autograd::AutogradContext* ctx, const at::Tensor& parameter,
                                const at::Tensor& leaves) {
    auto* const sums = reinterpret_cast<LeafSums*>(ctx->saved_data["sums"].toInt());
    if (!sums && leaves.size(0) != 1) throw std::logic_error("a pass of several shards without sums for their leaves");
    if (!sums) return leaves[0].view_as(parameter).to(parameter.scalar_type());
    sums->add(parameter, leaves.view({leaves.size(0), parameter.numel()}));
    return {};
  }
};

LstmImpl::LstmImpl(const LstmOptions& given) : options(given) {
  if (given.in < 1 || given.hidden < 1)
    throw ConfigError(fmt::format("an LSTM from {} features to {} hidden units", given.in, given.hidden),
                      "both are numbers from 1 up", "give it the sizes of its input and of its state");
  torch::nn::LSTM torchs(torch::nn::LSTMOptions(given.in, given.hidden));
  const auto taken = [&](const char* name) { return register_parameter(name, torchs->named_parameters()[name]); };
  weight_ih = taken("weight_ih_l0");
  weight_hh = taken("weight_hh_l0");
  bias_ih = taken("bias_ih_l0");
  bias_hh = taken("bias_hh_l0");
}

at::Tensor LstmImpl::forward(const at::Tensor& x) {
  if (x.dim() != 3 || x.size(1) < 1 || x.size(2) != options.in)
    throw ConfigError(fmt::format("{} (LSTM, {} -> {}) was given an input of [{}]", layer_name(), options.in,
                                  options.hidden, fmt::join(x.sizes(), ", ")),
                      fmt::format("it takes [rows, steps, {}], of one step or more", options.in),
                      "give it that shape, or make the layer for the input's last dimension");
  shard_rows(*this, x.size(0));
  trace("input", x);
  bool for_backward = x.requires_grad();
  for (const at::Tensor* parameter : {&weight_ih, &weight_hh, &bias_ih, &bias_hh}) {
    if (!parameter->requires_grad()) continue;
    for_backward = true;
    if (at::GradMode::is_enabled() && pass().sums) pass().sums->expect(*parameter);
  }
  for_backward = for_backward && at::GradMode::is_enabled();
  const at::Tensor y = LstmFunction::apply(x, weight_ih, weight_hh, bias_ih, bias_hh, for_backward, this);
  trace("output", y);
  return y;
}

void LstmImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("tandem::Lstm(in={}, hidden={})", options.in, options.hidden);
}

}  // namespace tandem
