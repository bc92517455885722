#include "rl/ppo/ppo_loss.h"

#include <torch/torch.h>

#include "kernels/linear_kernels.h"
#include "nn/kernel_choice.h"

namespace tandem {
namespace {

at::Tensor times_rows(const at::Tensor& values, const at::Tensor& rows) {
  if (!values.defined()) return {};
  return values.dim() == 1 ? values * rows : values * rows.unsqueeze(1);
}

// Forward finds the gradients too: they need what the loss needs.
struct PpoLossFunction : torch::autograd::Function<PpoLossFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& policy_in,
                            const std::optional<at::Tensor>& log_deviation_in, const at::Tensor& value_in,
                            const PpoBatch& batch, const RolloutShape& shape, const PpoWeights& weights,
                            at::Tensor* terms) {
    const at::Tensor policy = policy_in.contiguous(), value = value_in.contiguous();
    const at::Tensor log_deviation = log_deviation_in ? log_deviation_in->contiguous() : at::Tensor();
    const int64_t rows = value.size(0);
    const at::Tensor loss = at::empty_like(value), d_policy = at::empty_like(policy), d_value = at::empty_like(value);
    const at::Tensor d_deviation = log_deviation.defined() ? at::empty_like(log_deviation) : at::Tensor();
    *terms = at::empty({rows, kPpoTerms}, value.options());
    kernels_for<PpoKernels>(policy).loss(
        policy.const_data_ptr<float>(), log_deviation.defined() ? log_deviation.const_data_ptr<float>() : nullptr,
        value.const_data_ptr<float>(), batch.rows_from(0), shape, rows, weights, loss.data_ptr<float>(),
        terms->data_ptr<float>(), d_policy.data_ptr<float>(),
        d_deviation.defined() ? d_deviation.data_ptr<float>() : nullptr, d_value.data_ptr<float>(), stream_for(policy));
    ctx->save_for_backward({d_policy, d_deviation, d_value});
    return loss;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    return {
        times_rows(saved[0], grads[0]), times_rows(saved[1], grads[0]), times_rows(saved[2], grads[0]), {}, {}, {}, {}};
  }
};

}  // namespace

MiniBatch PpoBatch::rows_from(int64_t first) const {
  const auto at_row = [&](const at::Tensor& t) { return t.data_ptr<float>() + first * (t.numel() / t.size(0)); };
  return {.seen = at_row(seen),
          .action = at_row(action),
          .log_prob = at_row(log_prob),
          .advantage = at_row(advantage),
          .target = at_row(target),
          .weight = at_row(weight),
          .row = number.data_ptr<int64_t>() + first,
          .table_row = table_row.data_ptr<int64_t>() + first};
}

PpoLosses ppo_losses(const PolicyOutput& out, const PpoBatch& batch, const RolloutShape& shape,
                     const PpoWeights& weights, int shards) {
  PpoLosses losses;
  at::Tensor terms;
  losses.rows =
      PpoLossFunction::apply(out.policy, out.log_deviation.defined() ? std::optional(out.log_deviation) : std::nullopt,
                             out.value, batch, shape, weights, &terms);
  const int64_t rows = terms.size(0) / shards;
  losses.terms = at::empty({shards, kPpoTerms}, terms.options());
  const at::Tensor scratch = at::empty({column_scratch_floats(shards, rows, kPpoTerms)}, terms.options());
  kernels_for<LinearKernels>(terms).column_sums(terms.const_data_ptr(), shards, rows, kPpoTerms, float_type(terms),
                                                losses.terms.data_ptr<float>(), scratch.data_ptr<float>(),
                                                stream_for(terms));
  return losses;
}

// Column by column: a row's sum is the same whatever rows stand beside it.
at::Tensor forecast_losses(const at::Tensor& forecast, const at::Tensor& target, const at::Tensor& weight) {
  at::Tensor sum;
  for (int64_t i = 0; i < forecast.size(1); ++i) {
    const at::Tensor error = forecast.select(1, i) - target.select(1, i), square = error * error;
    sum = sum.defined() ? sum + square : square;
  }
  return sum * weight;
}

}  // namespace tandem
