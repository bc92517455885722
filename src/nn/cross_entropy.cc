#include "nn/cross_entropy.h"

#include <torch/torch.h>

#include <algorithm>

#include "base/errors.h"
#include "kernels/token_kernels.h"
#include "nn/kernel_choice.h"
#include "nn/linear.h"
#include "nn/linear_gemm.h"

namespace tandem {
namespace {

CrossEntropyForward cross_entropy_call(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& weights,
                                       int64_t ignore_index, const at::Tensor& log_sums) {
  return {.rows = logits.size(0),
          .classes = logits.size(1),
          .logits = {logits.const_data_ptr(), float_type(logits)},
          .labels = labels.const_data_ptr<int64_t>(),
          .class_weights = weights.defined() ? weights.const_data_ptr<float>() : nullptr,
          .ignore_index = ignore_index,
          .losses = nullptr,
          .log_sums = log_sums.data_ptr<float>()};
}

struct CrossEntropyFunction : torch::autograd::Function<CrossEntropyFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& logits_in,
                            const at::Tensor& labels_in, const std::optional<at::Tensor>& class_weights,
                            int64_t ignore_index) {
    const WithoutAutocast plain;
    const at::Tensor logits = logits_in.contiguous(), labels = labels_in.contiguous();
    const at::Tensor weights = class_weights ? class_weights->to(at::kFloat).contiguous() : at::Tensor();
    at::Tensor losses = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat).requires_grad(false));
    const at::Tensor log_sums = at::empty({logits.size(0), 2}, losses.options());
    CrossEntropyForward call = cross_entropy_call(logits, labels, weights, ignore_index, log_sums);
    call.losses = losses.data_ptr<float>();
    kernels_for<CrossEntropyKernels>(logits).forward(call, stream_for(logits));
    ctx->save_for_backward({logits, labels, weights, log_sums});
    ctx->saved_data["ignore"] = ignore_index;
    return losses;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const WithoutAutocast plain;
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &logits = saved[0], loss_grads = grads[0].to(at::kFloat).contiguous();
    at::Tensor grad = at::empty_like(logits);
    const CrossEntropyBackward call{
        .forward = cross_entropy_call(logits, saved[1], saved[2], ctx->saved_data["ignore"].toInt(), saved[3]),
        .loss_grads = loss_grads.const_data_ptr<float>(),
        .grad = {grad.data_ptr(), float_type(grad)}};
    kernels_for<CrossEntropyKernels>(logits).backward(call, stream_for(logits));
    return {grad, {}, {}, {}};
  }
};

void refuse_bad_labels(const at::Tensor& logits, const at::Tensor& labels, int64_t classes,
                       const CrossEntropyOptions& options) {
  if (logits.dim() != 2 || labels.dim() != 1 || labels.size(0) != logits.size(0) || labels.scalar_type() != at::kLong)
    throw ConfigError("cross-entropy of logits " + c10::str(logits.sizes()) + " and labels " +
                          c10::str(labels.sizes()) + " of type " + c10::toString(labels.scalar_type()),
                      "it takes logits [rows, classes] and one int64 label for each row",
                      "bring both into this shape: logits.flatten(0, -2), labels.flatten()");
  if (options.class_weights.defined() && options.class_weights.numel() != classes)
    throw ConfigError("cross-entropy of " + std::to_string(classes) + " classes was given " +
                          std::to_string(options.class_weights.numel()) + " class weights",
                      "each class has one", "give as many weights as there are logits in a row");
  if (labels.is_cuda()) return;
  const at::Tensor flat = labels.contiguous();
  const int64_t* const label = flat.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < flat.numel(); ++row)
    if (label[row] != options.ignore_index && (label[row] < 0 || label[row] >= classes))
      throw ConfigError(
          "cross-entropy was given the label " + std::to_string(label[row]) + " in row " + std::to_string(row),
          "there are " + std::to_string(classes) + " classes, from 0 on, and rows with label " +
              std::to_string(options.ignore_index) + " are ignored",
          "look at the labels of the data set, or at the width of the last layer");
}

// The rows of chunk [first, first + count) of every shard, one shard after the other.
at::Tensor chunk_of(const at::Tensor& rows, int shards, int64_t first, int64_t count) {
  const int64_t each = rows.size(0) / shards;
  if (count == each) return rows;
  std::vector<int64_t> sizes = rows.sizes().vec();
  sizes[0] = each;
  sizes.insert(sizes.begin(), shards);
  return rows.view(sizes).narrow(1, first, count).flatten(0, 1);
}
void set_chunk(at::Tensor& rows, int shards, int64_t first, int64_t count, const at::Tensor& chunk) {
  std::vector<int64_t> sizes = rows.sizes().vec();
  sizes[0] = rows.size(0) / shards;
  sizes.insert(sizes.begin(), shards);
  at::Tensor to = rows.view(sizes).narrow(1, first, count);
  to.copy_(chunk.view(to.sizes()));
}

// What both directions need of a call.
struct HeadMemo : torch::CustomClassHolder {
  LinearImpl* head = nullptr;
  LeafSums* sums = nullptr;
  LinearPass pass;  // of all rows
  int64_t chunk_rows = 0, ignore_index = 0;
  at::Tensor labels, class_weights, log_sums;

  // run(first row, rows, the pass of this chunk) for each chunk of a shard.
  template <typename Run>
  void for_chunks(const Run& run) const {
    for (int64_t first = 0; first < pass.shard_rows; first += chunk_rows) {
      LinearPass one = pass;
      one.shard_rows = std::min(chunk_rows, pass.shard_rows - first);
      run(first, one.shard_rows, one);
    }
  }
  at::Tensor rows_of(const at::Tensor& all, int64_t first, int64_t count) const {
    return chunk_of(all, pass.shards, first, count).contiguous();
  }
};

struct HeadCrossEntropyFunction : torch::autograd::Function<HeadCrossEntropyFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const c10::intrusive_ptr<HeadMemo>& memo) {
    const at::ScalarType type = compute_type(x);
    const WithoutAutocast plain;
    const at::Tensor rows = x.to(type).contiguous(), w = weight.to(type).contiguous(),
                     b = bias ? bias->to(type).contiguous() : at::Tensor();
    at::Tensor losses = at::empty({rows.size(0)}, rows.options().dtype(at::kFloat).requires_grad(false));
    memo->log_sums = at::empty({rows.size(0), 2}, losses.options());
    memo->for_chunks([&](int64_t first, int64_t count, const LinearPass& pass) {
      const at::Tensor logits = linear_forward(pass, memo->rows_of(rows, first, count), w, b);
      const at::Tensor labels = memo->rows_of(memo->labels, first, count);
      const at::Tensor some_losses = at::empty({logits.size(0)}, losses.options()),
                       log_sums = at::empty({logits.size(0), 2}, losses.options());
      CrossEntropyForward call = cross_entropy_call(logits, labels, memo->class_weights, memo->ignore_index, log_sums);
      call.losses = some_losses.data_ptr<float>();
      kernels_for<CrossEntropyKernels>(logits).forward(call, stream_for(logits));
      set_chunk(losses, pass.shards, first, count, some_losses);
      set_chunk(memo->log_sums, pass.shards, first, count, log_sums);
    });
    ctx->save_for_backward({rows, w, b});
    ctx->saved_data["memo"] = c10::IValue::make_capsule(memo);
    ctx->saved_data["x type"] = static_cast<int64_t>(x.scalar_type());
    return losses;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const WithoutAutocast plain;
    const auto memo = c10::static_intrusive_pointer_cast<HeadMemo>(ctx->saved_data["memo"].toCapsule());
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &rows = saved[0], &w = saved[1], &b = saved[2], loss_grads = grads[0].to(at::kFloat).contiguous();
    const LinearImpl& head = *memo->head;
    at::Tensor x_grad = ctx->needs_input_grad(0) ? at::empty_like(rows) : at::Tensor(), weight_leaves, bias_leaves;
    const auto add = [](at::Tensor& leaves, const at::Tensor& more) {
      leaves = leaves.defined() ? leaves.add_(more) : more;
    };
    memo->for_chunks([&](int64_t first, int64_t count, const LinearPass& pass) {
      const at::Tensor x = memo->rows_of(rows, first, count), logits = linear_forward(pass, x, w, b);
      const at::Tensor labels = memo->rows_of(memo->labels, first, count),
                       log_sums = memo->rows_of(memo->log_sums, first, count),
                       some_grads = memo->rows_of(loss_grads, first, count);
      const CrossEntropyBackward call{
          .forward = cross_entropy_call(logits, labels, memo->class_weights, memo->ignore_index, log_sums),
          .loss_grads = some_grads.const_data_ptr<float>(),
          .grad = {logits.data_ptr(), float_type(logits)}};  // in place
      kernels_for<CrossEntropyKernels>(logits).backward(call, stream_for(logits));
      if (head.weight.requires_grad()) add(weight_leaves, linear_weight_leaves(pass, logits, x));
      if (b.defined() && head.bias.requires_grad()) add(bias_leaves, linear_bias_leaves(pass, logits));
      if (x_grad.defined()) set_chunk(x_grad, pass.shards, first, count, linear_input_gradient(pass, logits, w));
    });
    const auto give = [&](const at::Tensor& parameter, const at::Tensor& leaves) {
      if (!leaves.defined()) return at::Tensor();
      if (!memo->sums) return leaves[0].view_as(parameter);
      memo->sums->add(parameter, leaves.view({memo->pass.shards, parameter.numel()}));
      return at::Tensor();
    };
    const at::Tensor weight_grad = give(head.weight, weight_leaves), bias_grad = give(head.bias, bias_leaves);
    if (x_grad.defined()) x_grad = x_grad.to(static_cast<at::ScalarType>(ctx->saved_data["x type"].toInt()));
    return {x_grad, weight_grad, bias_grad, {}};
  }
};

}  // namespace

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels, const CrossEntropyOptions& options) {
  refuse_bad_labels(logits, labels, logits.dim() == 2 ? logits.size(1) : 0, options);
  const at::Tensor& weights = options.class_weights;
  return CrossEntropyFunction::apply(logits, labels, weights.defined() ? std::optional(weights) : std::nullopt,
                                     options.ignore_index);
}

at::Tensor head_cross_entropy(LinearImpl& head, const at::Tensor& x, const at::Tensor& labels,
                              const CrossEntropyOptions& options, int64_t chunk_rows) {
  if (x.dim() != 2 || x.size(1) != head.options.in || head.options.gelu || chunk_rows < 1)
    throw ConfigError("cross-entropy in chunks of " + std::to_string(chunk_rows) + " rows of an input " +
                          c10::str(x.sizes()) + " through " + head.layer_name() + " (" +
                          std::to_string(head.options.in) + " -> " + std::to_string(head.options.out) + ")",
                      "it takes [rows, in], a linear layer without GELU, and 1 row or more in a chunk",
                      "bring the input into this shape: x.flatten(0, -2)");
  refuse_bad_labels(x, labels, head.options.out, options);
  const auto memo = c10::make_intrusive<HeadMemo>();
  memo->head = &head;
  memo->sums = head.pass().sums;
  memo->pass = LinearPass::of(head, x.size(0), head.options.in, head.options.out);
  memo->chunk_rows = chunk_rows;
  memo->ignore_index = options.ignore_index;
  memo->labels = labels.contiguous();
  if (options.class_weights.defined()) memo->class_weights = options.class_weights.to(at::kFloat).contiguous();
  if (at::GradMode::is_enabled() && memo->sums) {
    if (head.weight.requires_grad()) memo->sums->expect(head.weight);
    if (head.bias.defined() && head.bias.requires_grad()) memo->sums->expect(head.bias);
  }
  return HeadCrossEntropyFunction::apply(x, head.weight, head.bias.defined() ? std::optional(head.bias) : std::nullopt,
                                         memo);
}

}  // namespace tandem
