#include "nn/cross_entropy.h"

#include <torch/torch.h>

#include "base/errors.h"
#include "kernels/token_kernels.h"
#include "nn/kernel_choice.h"

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
    const at::Tensor log_sums = at::empty_like(losses);
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

void refuse_bad_labels(const at::Tensor& logits, const at::Tensor& labels, const CrossEntropyOptions& options) {
  if (logits.dim() != 2 || labels.dim() != 1 || labels.size(0) != logits.size(0) || labels.scalar_type() != at::kLong)
    throw ConfigError("cross-entropy of logits " + c10::str(logits.sizes()) + " and labels " +
                          c10::str(labels.sizes()) + " of type " + c10::toString(labels.scalar_type()),
                      "it takes logits [rows, classes] and one int64 label for each row",
                      "bring both into this shape: logits.flatten(0, -2), labels.flatten()");
  const int64_t classes = logits.size(1);
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

}  // namespace

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels, const CrossEntropyOptions& options) {
  refuse_bad_labels(logits, labels, options);
  const at::Tensor& weights = options.class_weights;
  return CrossEntropyFunction::apply(logits, labels, weights.defined() ? std::optional(weights) : std::nullopt,
                                     options.ignore_index);
}

}  // namespace tandem
