#include "nn/attention.h"

#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "base/errors.h"
#include "nn/attention_kernels.h"
#include "nn/kernel_choice.h"
#include "nn/shard_rows.h"

namespace tandem {
namespace {

int64_t blocks_of(int64_t count, int64_t size) { return (count + size - 1) / size; }

// Lengths at which flash's split of the keys changes no bit: there is one block of keys, or the sum of two.
bool split_is_harmless(const AttentionShape& shape) {
  return shape.keys <= 128 || (shape.keys <= 256 && shape.head_size <= 64);
}

struct AttentionMemo : torch::CustomClassHolder {
  AttentionCall call;
  bool packed = false;
  const AttentionImpl* layer = nullptr;
};

// q, k and v of a projection [rows, T, 3, heads, head size], as views.
at::Tensor packed_part(const at::Tensor& qkv, int64_t part) { return qkv.select(2, part).transpose(1, 2); }

// The opposite, without a copy where the three are its parts already.
at::Tensor packed_gradient(const AttentionGradients& g) {
  const at::Tensor q = g.q.transpose(1, 2), k = g.k.transpose(1, 2), v = g.v.transpose(1, 2);
  const int64_t tokens = q.size(1), heads = q.size(2), size = q.size(3), row = heads * size;
  const auto is_part = [&](const at::Tensor& x, int64_t part) {
    return x.is_alias_of(q) && x.storage_offset() == q.storage_offset() + part * row &&
           x.stride(0) == 3 * row * tokens && x.stride(1) == 3 * row && x.stride(2) == size && x.stride(3) == 1;
  };
  if (is_part(q, 0) && is_part(k, 1) && is_part(v, 2))
    return q.as_strided({q.size(0), tokens, 3, heads, size}, {3 * row * tokens, 3 * row, row, size, 1});
  return at::stack({q, k, v}, 2);
}

AttentionCall attention_of_shard(const AttentionCall& all, int64_t first, int64_t rows) {
  AttentionCall one = all;
  one.shards = 1;
  if (all.bias.defined()) one.bias = all.bias.narrow(0, first, rows);
  return one;
}

bool attends_apart(const AttentionMemo& memo) {
  return memo.layer->one_by_one() && memo.call.shards > 1 && memo.call.kernel != AttentionKernel::kMath;
}

AttentionResult attend_forward(const AttentionMemo& memo, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v) {
  if (!attends_apart(memo)) return attention_forward(memo.call, q, k, v);
  const int64_t rows = q.size(0) / memo.call.shards;
  std::vector<at::Tensor> outs, kept;
  AttentionResult last;
  for (int64_t first = 0; first < q.size(0); first += rows) {
    const auto mine = [&](const at::Tensor& x) { return x.narrow(0, first, rows); };
    last = attention_forward(attention_of_shard(memo.call, first, rows), mine(q), mine(k), mine(v));
    outs.push_back(last.out.transpose(1, 2));
    kept.push_back(last.kept[0]);
  }
  return {at::cat(outs).transpose(1, 2), {at::cat(kept), last.kept[1], last.kept[2]}};
}

AttentionGradients attend_backward(const AttentionMemo& memo, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v, const at::Tensor& out, const std::vector<at::Tensor>& kept,
                                   const at::Tensor& out_grad) {
  if (!attends_apart(memo)) return attention_backward(memo.call, q, k, v, out, kept, out_grad, memo.packed);
  const int64_t rows = q.size(0) / memo.call.shards;
  std::vector<at::Tensor> parts[3];
  for (int64_t first = 0; first < q.size(0); first += rows) {
    const auto mine = [&](const at::Tensor& x) { return x.narrow(0, first, rows); };
    const AttentionGradients one =
        attention_backward(attention_of_shard(memo.call, first, rows), mine(q), mine(k), mine(v), mine(out),
                           {mine(kept[0]), kept[1], kept[2]}, mine(out_grad), /*packed=*/false);
    parts[0].push_back(one.q);
    parts[1].push_back(one.k);
    parts[2].push_back(one.v);
  }
  return {at::cat(parts[0]), at::cat(parts[1]), at::cat(parts[2])};
}

}  // namespace

AttentionKernel choose_attention(const AttentionShape& shape) {
  const bool served = shape.gpu && !shape.dropout && shape.head_size % 8 == 0 && shape.head_size <= 256;
  if (!served) return AttentionKernel::kMath;
  return shape.half && !shape.masked ? AttentionKernel::kFlash : AttentionKernel::kEfficient;
}

// Flash splits the keys in forward too, unless there are blocks of 64 queries for four fifths of twice the SMs.
int64_t padded_batch_forward(int64_t batch, int64_t heads, const AttentionShape& shape) {
  if (split_is_harmless(shape)) return batch;
  return std::max(batch, blocks_of(blocks_of(kPaddedHeads * 2 * 4, 5), heads * blocks_of(shape.queries, 64)));
}

int64_t padded_batch_backward(int64_t batch, int64_t heads, const AttentionShape& shape) {
  return split_is_harmless(shape) ? batch : std::max(batch, blocks_of(kPaddedHeads, heads));
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  // Packed: q is the whole projection, k and v are undefined.
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& q,
                            const std::optional<at::Tensor>& k, const std::optional<at::Tensor>& v,
                            const c10::intrusive_ptr<AttentionMemo>& memo) {
    const WithoutAutocast plain;
    const bool packed = memo->packed;
    const AttentionResult found = packed
                                      ? attend_forward(*memo, packed_part(q, 0), packed_part(q, 1), packed_part(q, 2))
                                      : attend_forward(*memo, q, *k, *v);
    torch::autograd::variable_list saved{q, packed ? at::Tensor() : *k, packed ? at::Tensor() : *v, found.out};
    saved.insert(saved.end(), found.kept.begin(), found.kept.end());
    ctx->save_for_backward(saved);
    ctx->saved_data["memo"] = c10::IValue::make_capsule(memo);
    return packed ? found.out.transpose(1, 2).flatten(2) : found.out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const WithoutAutocast plain;
    const auto saved = ctx->get_saved_variables();
    const auto memo = c10::static_intrusive_pointer_cast<AttentionMemo>(ctx->saved_data["memo"].toCapsule());
    const AttentionImpl& layer = *memo->layer;
    layer.trace("gradient of the output", grads[0]);
    const at::Tensor& out = saved[3];
    const std::vector<at::Tensor> kept{saved[4], saved[5], saved[6]};
    if (memo->packed) {
      const at::Tensor out_grad =
          grads[0].contiguous().view({out.size(0), out.size(2), out.size(1), out.size(3)}).transpose(1, 2);
      const at::Tensor found = packed_gradient(attend_backward(
          *memo, packed_part(saved[0], 0), packed_part(saved[0], 1), packed_part(saved[0], 2), out, kept, out_grad));
      layer.trace("gradient of the input", found);
      return {found, {}, {}, {}};
    }
    const at::Tensor out_grad = grads[0].stride(-1) == 1 ? grads[0] : grads[0].contiguous();
    const AttentionGradients found = attend_backward(*memo, saved[0], saved[1], saved[2], out, kept, out_grad);
    for (const at::Tensor& grad : {found.q, found.k, found.v}) layer.trace("gradient of the input", grad);
    return {found.q, found.k, found.v, {}};
  }
};

AttentionImpl::AttentionImpl(const AttentionOptions& of) : options(of) {
  if (!(of.dropout >= 0 && of.dropout <= 1))
    throw ConfigError("an attention with a dropout of " + std::to_string(of.dropout),
                      "it is the probability to drop a weight", "choose it in [0, 1]");
}

void AttentionImpl::refuse_bad_input(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const at::Tensor& mask, bool has_key) const {
  const bool shapes = q.dim() == 4 && k.dim() == 4 && k.sizes() == v.sizes() && q.size(0) == k.size(0) &&
                      q.size(1) == k.size(1) && q.size(3) == k.size(3);
  if (!shapes)
    throw ConfigError(layer_name() + " (attention) was given queries " + c10::str(q.sizes()) + ", keys " +
                          c10::str(k.sizes()) + " and values " + c10::str(v.sizes()),
                      "they are [rows, heads, T, head size], keys and values of one T", "bring them into this shape");
  if (options.causal && q.size(2) != k.size(2))
    throw ConfigError(layer_name() + " (causal attention) was given " + std::to_string(q.size(2)) + " queries and " +
                          std::to_string(k.size(2)) + " keys",
                      "token t attends to tokens 0 to t, so there are as many of both", "give it one sequence");
  shard_rows(*this, q.size(0));
  if (mask.defined() &&
      (mask.scalar_type() != at::kBool || mask.dim() != 2 || mask.size(0) != k.size(0) || mask.size(1) != k.size(2)))
    throw ConfigError(layer_name() + " (attention) was given a mask of " + c10::str(mask.sizes()) + " and type " +
                          c10::toString(mask.scalar_type()) + " for keys " + c10::str(k.sizes()),
                      "a mask is bool [" + std::to_string(k.size(0)) + ", " + std::to_string(k.size(2)) +
                          "], true where a key takes part",
                      "give it one value for each row and key");
  if (options.dropout > 0 && !has_key)
    throw ConfigError(layer_name() + " (attention) has a dropout of " + std::to_string(options.dropout) +
                          " and was given no random key",
                      "what it drops is a function of (seed, step, shard, site)",
                      "pass context.random(site) to its forward()");
}

at::Tensor AttentionImpl::attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool packed,
                                 const at::Tensor& mask, const std::optional<RandomSource>& key) {
  const at::Tensor queries = packed ? packed_part(q, 0) : q, keys = packed ? packed_part(q, 1) : k;
  refuse_bad_input(queries, keys, packed ? packed_part(q, 2) : v, mask, key.has_value());
  const at::ScalarType type = compute_type(q);
  const auto memo = c10::make_intrusive<AttentionMemo>();
  AttentionCall& call = memo->call;
  const bool drops = options.dropout > 0 && key->training;
  call.shape = {.gpu = q.is_cuda(),
                .half = type == at::kBFloat16 || type == at::kHalf,
                .masked = mask.defined(),
                .dropout = drops,
                .queries = queries.size(2),
                .keys = keys.size(2),
                .head_size = queries.size(3)};
  call.kernel = options.kernel && q.is_cuda() ? *options.kernel : choose_attention(call.shape);
  call.causal = options.causal;
  call.scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(queries.size(3))));
  call.shards = pass().shards;
  if (drops) {
    call.dropout = options.dropout;
    call.key = key;
  }
  if (mask.defined())
    call.bias = at::zeros({mask.size(0), 1, 1, mask.size(1)}, q.options().dtype(type).requires_grad(false))
                    .masked_fill_(mask.logical_not().view({mask.size(0), 1, 1, mask.size(1)}),
                                  -std::numeric_limits<double>::infinity());
  memo->packed = packed;
  memo->layer = this;
  const auto cast = [&](const at::Tensor& x) { return x.defined() ? std::optional(x.to(type)) : std::nullopt; };
  const at::Tensor out = AttentionFunction::apply(q.to(type), cast(k), cast(v), memo);
  trace("output", out);
  return out;
}

at::Tensor AttentionImpl::forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask,
                                  const std::optional<RandomSource>& key) {
  for (const at::Tensor& x : {q, k, v}) trace("input", x);
  return attend(q, k, v, /*packed=*/false, mask, key);
}

at::Tensor AttentionImpl::forward_packed(const at::Tensor& qkv, const at::Tensor& mask,
                                         const std::optional<RandomSource>& key) {
  if (qkv.dim() != 5 || qkv.size(2) != 3)
    throw ConfigError(layer_name() + " (attention) was given a projection " + c10::str(qkv.sizes()),
                      "it is [rows, T, 3, heads, head size]", "view the output of the projection like that");
  trace("input", qkv);
  return attend(qkv.contiguous(), {}, {}, /*packed=*/true, mask, key);
}

}  // namespace tandem
