#include "nn/attention_kernels.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "kernels/cpu/short_attention.h"
#include "nn/dropout.h"

namespace tandem {
namespace {

// ---- flash ----

// The first rows are x's, the others 0; in memory [rows, T, heads, head size], as the kernels like it.
at::Tensor padded_batch(const at::Tensor& x, int64_t rows) {
  if (x.size(0) == rows) return x;
  at::Tensor padded = x.dim() == 4 ? at::zeros({rows, x.size(2), x.size(1), x.size(3)}, x.options()).transpose(1, 2)
                                   : at::zeros({rows, x.size(1), x.size(2)}, x.options());
  padded.narrow(0, 0, x.size(0)).copy_(x);
  return padded;
}

AttentionResult flash_forward(const AttentionCall& call, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& v) {
  const int64_t rows = q.size(0), padded = padded_batch_forward(rows, q.size(1), call.shape);
  const auto found = at::_scaled_dot_product_flash_attention(padded_batch(q, padded), padded_batch(k, padded),
                                                             padded_batch(v, padded), /*dropout_p=*/0.0, call.causal,
                                                             /*return_debug_mask=*/false, call.scale);
  const auto mine = [&](const at::Tensor& x) { return padded == rows ? x : x.narrow(0, 0, rows); };
  return {mine(std::get<0>(found)), {mine(std::get<1>(found)), std::get<6>(found), std::get<7>(found)}};
}

// Its sums [rows, heads, T, 1] are those that flash wants.
AttentionResult cudnn_forward(const AttentionCall& call, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& v) {
  const auto found = at::_scaled_dot_product_cudnn_attention(q, k, v, std::nullopt, /*compute_log_sumexp=*/true,
                                                             /*dropout_p=*/0.0, call.causal,
                                                             /*return_debug_mask=*/false, call.scale);
  return {std::get<0>(found), {std::get<1>(found).squeeze(-1), std::get<6>(found), std::get<7>(found)}};
}

AttentionGradients flash_backward(const AttentionCall& call, const at::Tensor& q, const at::Tensor& k,
                                  const at::Tensor& v, const at::Tensor& out, const std::vector<at::Tensor>& kept,
                                  const at::Tensor& out_grad) {
  const int64_t rows = q.size(0), padded = padded_batch_backward(rows, q.size(1), call.shape);
  const auto wide = [&](const at::Tensor& x) { return padded_batch(x, padded); };
  const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_backward(
      wide(out_grad), wide(q), wide(k), wide(v), wide(out), wide(kept[0]).contiguous(), {}, {}, q.size(2), k.size(2),
      /*dropout_p=*/0.0, call.causal, kept[1], kept[2], call.scale);
  const auto mine = [&](const at::Tensor& x) { return padded == rows ? x : x.narrow(0, 0, rows); };
  return {mine(dq), mine(dk), mine(dv)};
}

// ---- memory-efficient ----

// Expanded over heads and queries; the kernel wants rows of 16 bytes, so the last dimension is a part of a longer one.
std::optional<at::Tensor> wide_bias(const AttentionCall& call, const at::Tensor& q) {
  if (!call.bias.defined()) return std::nullopt;
  const int64_t keys = call.bias.size(3), room = (keys + 15) / 16 * 16;
  at::Tensor bias = at::zeros({q.size(0), 1, 1, room}, q.options());
  bias.narrow(3, 0, keys).copy_(call.bias);
  return bias.narrow(3, 0, keys).expand({q.size(0), q.size(1), q.size(2), keys});
}

AttentionResult efficient_forward(const AttentionCall& call, const at::Tensor& q, const at::Tensor& k,
                                  const at::Tensor& v) {
  const auto [out, log_sums, seed, offset] = at::_scaled_dot_product_efficient_attention(
      q, k, v, wide_bias(call, q), /*compute_log_sumexp=*/true, /*dropout_p=*/0.0, call.causal, call.scale);
  return {out, {log_sums, seed, offset}};
}

AttentionGradients efficient_backward(const AttentionCall& call, const at::Tensor& q, const at::Tensor& k,
                                      const at::Tensor& v, const at::Tensor& out, const std::vector<at::Tensor>& kept,
                                      const at::Tensor& out_grad, bool packed) {
  constexpr int64_t kCausalFromTopLeft = 1, kNoMask = 0;
  const auto tokens_first = [](const at::Tensor& x) { return x.transpose(1, 2); };
  const auto found = at::_efficient_attention_backward(
      tokens_first(out_grad), tokens_first(q), tokens_first(k), tokens_first(v), wide_bias(call, q), tokens_first(out),
      std::nullopt, std::nullopt, q.size(2), k.size(2), kept[0], /*dropout_p=*/0.0, kept[1], kept[2],
      call.causal ? kCausalFromTopLeft : kNoMask, /*bias_requires_grad=*/false, call.scale, /*num_splits_key=*/1,
      /*window_size=*/std::nullopt, /*shared_storage_dqdkdv=*/packed);
  return {tokens_first(std::get<0>(found)), tokens_first(std::get<1>(found)), tokens_first(std::get<2>(found))};
}

// ---- math in fp32 on a CPU, with few keys ----

// Measured with AVX-512 and one thread at 20 keys and heads of 32, forward and backward: .6 of the time of libtorch's
// batched GEMMs with the copies that these want; larger ones were not measured. Like the choices of attention.h it
// knows no rows.
constexpr int64_t kShortKeys = 64, kShortHead = 64;
bool is_short(const AttentionCall& call, const at::Tensor& q, const at::Tensor& k) {
  return q.is_cpu() && q.scalar_type() == at::kFloat && !call.key && !call.bias.defined() && k.size(2) <= kShortKeys &&
         q.size(3) <= kShortHead;
}

template <class Float>
HeadsView<Float> heads_view(const at::Tensor& x) {
  return {static_cast<Float*>(x.data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
}
// A token that stands for all (expanded: 0 numbers apart) is written out too.
at::Tensor without_gaps(const at::Tensor& x) { return x.stride(3) == 1 && x.stride(2) != 0 ? x : x.contiguous(); }

ShortAttention short_call(const AttentionCall& call, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return {.rows = q.size(0),
          .heads = q.size(1),
          .queries = q.size(2),
          .keys = k.size(2),
          .size = q.size(3),
          .scale = static_cast<float>(call.scale),
          .causal = call.causal,
          .q = heads_view<const float>(q),
          .k = heads_view<const float>(k),
          .v = heads_view<const float>(v)};
}

AttentionResult short_forward(const AttentionCall& call, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& v) {
  const at::Tensor weights = at::empty({q.size(0), q.size(1), q.size(2), k.size(2)}, q.options());
  const at::Tensor out = at::empty({q.size(0), q.size(2), q.size(1), q.size(3)}, q.options()).transpose(1, 2);
  const at::Tensor queries = without_gaps(q), keys = without_gaps(k), values = without_gaps(v);
  short_attention(short_call(call, queries, keys, values), weights.data_ptr<float>(), heads_view<float>(out));
  return {out, {weights, at::Tensor(), at::Tensor()}};
}

AttentionGradients short_backward(const AttentionCall& call, const at::Tensor& q, const at::Tensor& k,
                                  const at::Tensor& v, const at::Tensor& weights, const at::Tensor& out_grad,
                                  bool packed) {
  AttentionGradients found;
  if (packed) {
    const at::Tensor all = at::empty({q.size(0), q.size(2), 3, q.size(1), q.size(3)}, q.options());
    const auto part = [&](int64_t which) { return all.select(2, which).transpose(1, 2); };
    found = {part(0), part(1), part(2)};
  } else {
    found = {at::empty(q.sizes(), q.options()), at::empty(k.sizes(), k.options()), at::empty(v.sizes(), v.options())};
  }
  const at::Tensor queries = without_gaps(q), keys = without_gaps(k), values = without_gaps(v),
                   dy = without_gaps(out_grad);
  short_attention_gradients(short_call(call, queries, keys, values), weights.const_data_ptr<float>(),
                            heads_view<const float>(dy),
                            {heads_view<float>(found.q), heads_view<float>(found.k), heads_view<float>(found.v)});
  return found;
}

// ---- math: shard by shard, at the shard's own shape ----

// run(first row, rows) for each shard.
template <typename Run>
void for_attention_shards(const AttentionCall& call, int64_t rows, const Run& run) {
  const int64_t each = rows / call.shards;
  for (int64_t first = 0; first < rows; first += each) run(first, each);
}

AttentionResult math_forward(const AttentionCall& call, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  if (is_short(call, q, k)) return short_forward(call, q, k, v);
  const int64_t rows = q.size(0), queries = q.size(2), keys = k.size(2);
  at::Tensor weights = at::empty({rows, q.size(1), queries, keys}, q.options());
  const at::Tensor later =
      call.causal ? at::ones({queries, keys}, q.options().dtype(at::kBool)).triu_(1) : at::Tensor();
  for_attention_shards(call, rows, [&](int64_t first, int64_t count) {
    const auto mine = [&](const at::Tensor& x) { return x.narrow(0, first, count).contiguous(); };
    at::Tensor scores = at::matmul(mine(q), mine(k).transpose(2, 3)).to(at::kFloat).mul_(call.scale);
    if (later.defined()) scores.masked_fill_(later, -std::numeric_limits<float>::infinity());
    if (call.bias.defined()) scores.add_(mine(call.bias));
    weights.narrow(0, first, count).copy_(at::softmax(scores, -1));
  });
  const at::Tensor dropped = call.key ? dropout(weights, call.dropout, *call.key) : weights;
  at::Tensor out = at::empty({rows, queries, q.size(1), v.size(3)}, q.options()).transpose(1, 2);
  for_attention_shards(call, rows, [&](int64_t first, int64_t count) {
    out.narrow(0, first, count)
        .copy_(at::matmul(dropped.narrow(0, first, count), v.narrow(0, first, count).contiguous()));
  });
  return {out, {weights, at::Tensor(), at::Tensor()}};
}

AttentionGradients math_backward(const AttentionCall& call, const at::Tensor& q, const at::Tensor& k,
                                 const at::Tensor& v, const std::vector<at::Tensor>& kept, const at::Tensor& out_grad,
                                 bool packed) {
  if (is_short(call, q, k)) return short_backward(call, q, k, v, kept[0], out_grad, packed);
  const int64_t rows = q.size(0);
  const at::Tensor& weights = kept[0];
  const at::Tensor dropped = call.key ? dropout(weights, call.dropout, *call.key) : weights;
  AttentionGradients found{at::empty(q.sizes(), q.options()), at::empty(k.sizes(), k.options()),
                           at::empty(v.sizes(), v.options())};
  at::Tensor weight_grads = at::empty(weights.sizes(), weights.options());
  for_attention_shards(call, rows, [&](int64_t first, int64_t count) {
    const auto mine = [&](const at::Tensor& x) { return x.narrow(0, first, count).contiguous(); };
    found.v.narrow(0, first, count).copy_(at::matmul(mine(dropped).transpose(2, 3), mine(out_grad)));
    weight_grads.narrow(0, first, count).copy_(at::matmul(mine(out_grad), mine(v).transpose(2, 3)));
  });
  if (call.key) weight_grads = dropout(weight_grads, call.dropout, *call.key);
  for_attention_shards(call, rows, [&](int64_t first, int64_t count) {
    const auto mine = [&](const at::Tensor& x) { return x.narrow(0, first, count).contiguous(); };
    const at::Tensor w = mine(weights).to(at::kFloat), g = mine(weight_grads).to(at::kFloat);
    const at::Tensor scores = (w * (g - (w * g).sum(-1, /*keepdim=*/true))).mul_(call.scale).to(q.scalar_type());
    found.q.narrow(0, first, count).copy_(at::matmul(scores, mine(k)));
    found.k.narrow(0, first, count).copy_(at::matmul(scores.transpose(2, 3), mine(q)));
  });
  return found;
}

}  // namespace

AttentionResult attention_forward(const AttentionCall& call, const at::Tensor& q, const at::Tensor& k,
                                  const at::Tensor& v) {
  switch (call.kernel) {
    case AttentionKernel::kFlash:
      return flash_forward(call, q, k, v);
    case AttentionKernel::kCudnnFlash:
      return cudnn_forward(call, q, k, v);
    case AttentionKernel::kEfficient:
      return efficient_forward(call, q, k, v);
    case AttentionKernel::kMath:
      break;
  }
  return math_forward(call, q, k, v);
}

AttentionGradients attention_backward(const AttentionCall& call, const at::Tensor& q, const at::Tensor& k,
                                      const at::Tensor& v, const at::Tensor& out, const std::vector<at::Tensor>& kept,
                                      const at::Tensor& out_grad, bool packed) {
  switch (call.kernel) {
    case AttentionKernel::kFlash:
    case AttentionKernel::kCudnnFlash:
      return flash_backward(call, q, k, v, out, kept, out_grad);
    case AttentionKernel::kEfficient:
      return efficient_backward(call, q, k, v, out, kept, out_grad, packed);
    case AttentionKernel::kMath:
      break;
  }
  return math_backward(call, q, k, v, kept, out_grad, packed);
}

}  // namespace tandem
