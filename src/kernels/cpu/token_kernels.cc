#include "kernels/token_kernels.h"

#include <algorithm>

#include "kernels/cpu/cpu_dispatch.h"
#include "kernels/softmax_math.h"

namespace tandem {
namespace {

#define TANDEM_TOKEN_LOOP __attribute__((always_inline)) inline

// Eight logits, or `count` of them.
TANDEM_TOKEN_LOOP void read_slots(float (&x)[kSoftmaxSlots], const TypedInput& in, int64_t first, int count) {
  if (in.type == FloatType::kFloat && count == kSoftmaxSlots) {
    for (int s = 0; s < kSoftmaxSlots; ++s) x[s] = static_cast<const float*>(in.data)[first + s];
  } else if (in.type == FloatType::kBFloat16 && count == kSoftmaxSlots) {
    for (int s = 0; s < kSoftmaxSlots; ++s) x[s] = bf16_to_float(static_cast<const uint16_t*>(in.data)[first + s]);
  } else {
    for (int s = 0; s < count; ++s) x[s] = load_float(in.data, in.type, first + s);
  }
}

TANDEM_TOKEN_LOOP RowLogSum log_sum_of(const CrossEntropyForward& call, int64_t row) {
  const int lanes = softmax_lanes(call.classes);
  SoftmaxSum sums[256];
  const int64_t stride = int64_t{lanes} * kSoftmaxSlots;
  for (int l = 0; l < lanes; ++l) {
    SoftmaxLane lane;
    begin_softmax(lane);
    for (int64_t c = int64_t{l} * kSoftmaxSlots; c < call.classes; c += stride) {
      const int count = static_cast<int>(std::min<int64_t>(kSoftmaxSlots, call.classes - c));
      float x[kSoftmaxSlots] = {};
      read_slots(x, call.logits, row * call.classes + c, count);
      add_to_softmax(lane, x, count);
    }
    sums[l] = end_softmax(lane);
  }
  for (int group = 0; group < lanes / 32; ++group)
    for (int mask = 16; mask > 0; mask /= 2)
      for (int l = 0; l < mask; ++l)
        sums[32 * group + l] = join_softmax(sums[32 * group + l], sums[32 * group + l + mask]);
  for (int mask = lanes / 64; mask > 0; mask /= 2)
    for (int group = 0; group < mask; ++group)
      sums[32 * group] = join_softmax(sums[32 * group], sums[32 * (group + mask)]);
  return row_log_sum(sums[0]);
}

void cross_entropy_forward(const CrossEntropyForward& call, void*) {
  run_variant(best_cpu_variant(), [&]() TANDEM_INLINE_LAMBDA {
    for (int64_t row = 0; row < call.rows; ++row) {
      const LabelWeight label = label_weight(call.labels[row], call.classes, call.ignore_index, call.class_weights);
      const RowLogSum log_sum = log_sum_of(call, row);
      const bool known = !label.ignored && label.weight == label.weight;
      const float logit =
          known ? load_float(call.logits.data, call.logits.type, row * call.classes + call.labels[row]) : 0.0f;
      call.losses[row] = label.ignored ? 0.0f : row_loss(log_sum, logit) * label.weight;
      call.log_sums[2 * row] = log_sum.maximum;
      call.log_sums[2 * row + 1] = log_sum.log_sum;
    }
  });
}

void cross_entropy_backward(const CrossEntropyBackward& call, void*) {
  const CrossEntropyForward& forward = call.forward;
  run_variant(best_cpu_variant(), [&]() TANDEM_INLINE_LAMBDA {
    for (int64_t row = 0; row < forward.rows; ++row) {
      const int64_t label = forward.labels[row], first = row * forward.classes;
      const LabelWeight worth = label_weight(label, forward.classes, forward.ignore_index, forward.class_weights);
      const float scale = worth.weight * call.loss_grads[row];
      const RowLogSum log_sum{forward.log_sums[2 * row], forward.log_sums[2 * row + 1]};
      for (int64_t c = 0; c < forward.classes; ++c) {
        const float x = load_float(forward.logits.data, forward.logits.type, first + c);
        store_float(call.grad.data, call.grad.type, first + c,
                    worth.ignored ? 0.0f : logit_gradient(x, log_sum, c == label, scale));
      }
    }
  });
}

void embedding_forward(const EmbeddingForward& call, void*) {
  for (int64_t row = 0; row < call.rows; ++row) {
    const int64_t token = call.tokens[row];
    float* const out = call.out + row * call.width;
    if (token < 0 || token >= call.count)
      std::fill(out, out + call.width, float_of_bits(0x7FC00000u));
    else
      std::copy(call.weight + token * call.width, call.weight + (token + 1) * call.width, out);
  }
}

void embedding_backward(const EmbeddingBackward& call, void*) {
  for (int64_t row = 0; row < call.shards * call.shard_rows; ++row) {
    const int64_t token = call.tokens[row], shard = row / call.shard_rows;
    if (token < 0 || token >= call.count || token == call.padding_idx) continue;
    float* const leaf = call.leaves + (shard * call.count + token) * call.width;
    for (int i = 0; i < call.width; ++i)
      leaf[i] = leaf[i] + load_float(call.out_grad.data, call.out_grad.type, row * call.width + i);
  }
}

}  // namespace

const CrossEntropyKernels& CrossEntropyKernels::cpu() {
  static const CrossEntropyKernels kernels{cross_entropy_forward, cross_entropy_backward};
  return kernels;
}

const EmbeddingKernels& EmbeddingKernels::cpu() {
  static const EmbeddingKernels kernels{embedding_forward, embedding_backward};
  return kernels;
}

}  // namespace tandem
