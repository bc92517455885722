#include "kernels/token_kernels.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/cpu_dispatch.h"
#include "kernels/softmax_math.h"

namespace tandem {
namespace {

#define TANDEM_TOKEN_LOOP __attribute__((always_inline)) inline

// body(type) with the type as a compile-time constant, compiled for the best instructions.
template <typename Body>
void for_type(FloatType type, const Body& body) {
  using T = FloatType;
  if (type == T::kFloat)
    run_with_fma([&]() TANDEM_INLINE_LAMBDA { body(std::integral_constant<T, T::kFloat>{}); });
  else if (type == T::kBFloat16)
    run_with_fma([&]() TANDEM_INLINE_LAMBDA { body(std::integral_constant<T, T::kBFloat16>{}); });
  else
    run_with_fma([&]() TANDEM_INLINE_LAMBDA { body(std::integral_constant<T, T::kHalf>{}); });
}

template <FloatType kType>
TANDEM_TOKEN_LOOP RowLogSum log_sum_of(const CrossEntropyForward& call, int64_t row) {
  const int lanes = softmax_lanes(call.classes);
  SoftmaxLane all[256];
  SoftmaxSum sums[256];
  for (int l = 0; l < lanes; ++l) begin_softmax(all[l]);
  const int64_t start = row * call.classes, wholes = call.classes / kSoftmaxSlots;
  float x[kSoftmaxSlots] = {};
  const auto read = [&](int64_t c, int count) TANDEM_INLINE_LAMBDA {
    for (int s = 0; s < count; ++s) x[s] = load_float(call.logits.data, kType, start + c + s);
  };
  int lane = 0;
  for (int64_t whole = 0; whole < wholes; ++whole, lane = lane + 1 < lanes ? lane + 1 : 0) {
    read(whole * kSoftmaxSlots, kSoftmaxSlots);
    add_to_softmax(all[lane], x, kSoftmaxSlots);
  }
  if (const int rest = static_cast<int>(call.classes % kSoftmaxSlots); rest > 0) {
    read(wholes * kSoftmaxSlots, rest);
    add_to_softmax(all[lane], x, rest);
  }
  for (int l = 0; l < lanes; ++l) sums[l] = end_softmax(all[l]);
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
  for_type(call.logits.type, [&](auto type) TANDEM_INLINE_LAMBDA {
    constexpr FloatType kType = decltype(type)::value;
    for (int64_t row = 0; row < call.rows; ++row) {
      const LabelWeight label = label_weight(call.labels[row], call.classes, call.ignore_index, call.class_weights);
      const RowLogSum log_sum = log_sum_of<kType>(call, row);
      const bool known = !label.ignored && label.weight == label.weight;
      const float logit = known ? load_float(call.logits.data, kType, row * call.classes + call.labels[row]) : 0.0f;
      call.losses[row] = label.ignored ? 0.0f : row_loss(log_sum, logit) * label.weight;
      call.log_sums[2 * row] = log_sum.maximum;
      call.log_sums[2 * row + 1] = log_sum.log_sum;
    }
  });
}

void cross_entropy_backward(const CrossEntropyBackward& call, void*) {
  const CrossEntropyForward& forward = call.forward;
  const int64_t classes = forward.classes;
  for_type(forward.logits.type, [&](auto type) TANDEM_INLINE_LAMBDA {
    constexpr FloatType kType = decltype(type)::value;
    for (int64_t row = 0; row < forward.rows; ++row) {
      const int64_t label = forward.labels[row], first = row * classes;
      const LabelWeight worth = label_weight(label, classes, forward.ignore_index, forward.class_weights);
      if (worth.ignored) {
        for (int64_t c = 0; c < classes; ++c) store_float(call.grad.data, kType, first + c, 0.0f);
        continue;
      }
      const float scale = worth.weight * call.loss_grads[row];
      const RowLogSum log_sum{forward.log_sums[2 * row], forward.log_sums[2 * row + 1]};
      const bool known = label >= 0 && label < classes;
      const float logit = known ? load_float(forward.logits.data, kType, first + label) : 0.0f;  // before it is gone
      TANDEM_INDEPENDENT
      for (int64_t c = 0; c < classes; ++c) {
        const float x = load_float(forward.logits.data, kType, first + c);
        store_float(call.grad.data, kType, first + c, logit_gradient(x, log_sum, false, scale));
      }
      if (known) store_float(call.grad.data, kType, first + label, logit_gradient(logit, log_sum, true, scale));
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
