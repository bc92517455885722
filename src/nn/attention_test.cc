#include "nn/attention.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/errors.h"
#include "nn/test_pass.h"

namespace tandem {
namespace {

RandomSource attention_key(int first_shard, int shards) {
  RandomSource key(RandomKey{.seed = 1, .step = 2, .shard = static_cast<uint32_t>(first_shard), .site = 4});
  key.shards = shards;
  return key;
}

// Every row has its first key.
at::Tensor some_mask(int64_t rows, int64_t keys) {
  at::Tensor mask = test_numbers({rows, keys}, 8).gt(-0.3);
  mask.select(1, 0).fill_(true);
  return mask;
}

// [rows, 7, 3, 2, 8] -> output and gradient.
PassResults run_packed(Attention& attention, const at::Tensor& qkv, const at::Tensor& mask, int shards, int first,
                       int count) {
  const TestPass pass(*attention, count);
  at::Tensor mine = shards_of(qkv, shards, first, count).clone().requires_grad_();
  const at::Tensor y = attention->forward_packed(mine, mask.defined() ? shards_of(mask, shards, first, count) : mask,
                                                 attention_key(7 + first, count));
  y.backward(shards_of(test_numbers({qkv.size(0), 7, 16}, 9), shards, first, count).to(y.dtype()));
  return {{y.detach(), mine.grad()}, {}};
}

TEST(Attention, GivesEachShardTheBitsThatItHasAlone) {
  for (const bool causal : {false, true})
    for (const double dropout : {0.0, 0.2})
      for (const int shards : {1, 2, 3, 5}) {
        Attention attention(AttentionOptions{.causal = causal, .dropout = dropout});
        const at::Tensor qkv = test_numbers({2 * shards, 7, 3, 2, 8}, 1);
        for (const at::Tensor& mask : {at::Tensor(), some_mask(2 * shards, 7)})
          EXPECT_TRUE(same_in_any_pass(
              shards, [&](int first, int count) { return run_packed(attention, qkv, mask, shards, first, count); }))
              << causal << " " << dropout << " " << shards;
      }
}

struct Attended {
  at::Tensor out, q, k, v;
};
template <typename Attend>
Attended attended(int64_t queries, int64_t keys, const Attend& attend) {
  at::Tensor q = test_numbers({4, 2, queries, 8}, 1).requires_grad_(), k = test_numbers({4, 2, keys, 8}, 2),
             v = test_numbers({4, 2, keys, 8}, 3);
  k.requires_grad_();
  v.requires_grad_();
  const at::Tensor out = attend(q, k, v);
  out.backward(test_numbers({4, 2, queries, 8}, 4));
  return {out.detach(), q.grad(), k.grad(), v.grad()};
}
void expect_attended(const Attended& found, const Attended& wanted) {
  EXPECT_TRUE(at::allclose(found.out, wanted.out, 1e-5, 1e-5));
  EXPECT_TRUE(at::allclose(found.q, wanted.q, 1e-5, 1e-5));
  EXPECT_TRUE(at::allclose(found.k, wanted.k, 1e-5, 1e-5));
  EXPECT_TRUE(at::allclose(found.v, wanted.v, 1e-5, 1e-5));
}

TEST(Attention, IsTorchsAndSoAreItsGradients) {
  for (const bool causal : {false, true}) {
    Attention attention(AttentionOptions{.causal = causal});
    expect_attended(attended(9, 9, [&](auto& q, auto& k, auto& v) { return attention->forward(q, k, v); }),
                    attended(9, 9, [&](auto& q, auto& k, auto& v) {
                      return at::scaled_dot_product_attention(q, k, v, {}, 0.0, causal);
                    }));
  }
  Attention attention(AttentionOptions{.scale = 0.3});
  const at::Tensor mask = some_mask(4, 5);
  expect_attended(attended(9, 5, [&](auto& q, auto& k, auto& v) { return attention->forward(q, k, v, mask); }),
                  attended(9, 5, [&](auto& q, auto& k, auto& v) {
                    return at::scaled_dot_product_attention(q, k, v, mask.view({4, 1, 1, 5}), 0.0, false, 0.3);
                  }));
}

TEST(Attention, OfATokenThatStandsForAllIsThatOfItsCopies) {
  Attention attention;
  const auto whole = [](at::Tensor& x) { return x.narrow(2, 3, 1).expand(x.sizes()); };
  const Attended expanded =
      attended(9, 9, [&](auto& q, auto& k, auto& v) { return attention->forward(q, whole(k), whole(v)); });
  const Attended copied = attended(9, 9, [&](auto& q, auto& k, auto& v) {
    return attention->forward(q, whole(k).contiguous(), whole(v).contiguous());
  });
  EXPECT_TRUE(at::equal(expanded.out, copied.out));
  EXPECT_TRUE(at::equal(expanded.q, copied.q));
  EXPECT_TRUE(at::equal(expanded.k, copied.k));
  EXPECT_TRUE(at::equal(expanded.v, copied.v));
}

TEST(Attention, OutOfOneProjectionIsThatOfItsParts) {
  Attention attention(AttentionOptions{.causal = true});
  at::Tensor qkv = test_numbers({3, 7, 3, 2, 8}, 1).requires_grad_(), same = qkv.detach().clone().requires_grad_();
  const auto part = [&](int64_t i) { return same.select(2, i).transpose(1, 2); };
  const at::Tensor packed = attention->forward_packed(qkv), parts = attention->forward(part(0), part(1), part(2));
  const at::Tensor dy = test_numbers({3, 7, 16}, 2);
  packed.backward(dy);
  parts.backward(dy.view({3, 7, 2, 8}).transpose(1, 2));
  EXPECT_TRUE(same_bits(packed, parts.transpose(1, 2).flatten(2)));
  EXPECT_TRUE(same_bits(qkv.grad(), same.grad()));
}

TEST(Attention, UnderAutocastRunsInItsType) {
  Attention attention(AttentionOptions{.causal = true});
  const at::Tensor qkv = test_numbers({3, 7, 3, 2, 8}, 1), full = attention->forward_packed(qkv);
  const TestAutocast autocast;
  const at::Tensor half = attention->forward_packed(qkv);
  EXPECT_EQ(half.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::allclose(half.to(at::kFloat), full, 0.03, 0.03));
}

TEST(Attention, DropsWeightsByItsKeyAndNoneInValidation) {
  Attention attention(AttentionOptions{.dropout = 0.5}), plain;
  const at::Tensor qkv = test_numbers({4, 7, 3, 2, 8}, 1);
  const auto out = [&](const RandomSource& key) { return attention->forward_packed(qkv, {}, key); };
  EXPECT_TRUE(same_bits(out(attention_key(3, 1)), out(attention_key(3, 1))));
  EXPECT_FALSE(same_bits(out(attention_key(3, 1)), out(attention_key(4, 1))));
  const RandomSource validation(RandomKey{}, nullptr, /*trains=*/false);
  EXPECT_TRUE(same_bits(out(validation), plain->forward_packed(qkv)));
}

// One kernel for all rows of a job: what is chosen, and how far a batch is padded, knows no shards.
TEST(Attention, OnAGpuIsChosenByLengthsTypeAndMask) {
  const AttentionShape gpt2{.gpu = true, .half = true, .queries = 1024, .keys = 1024, .head_size = 64};
  AttentionShape masked = gpt2, full = gpt2, dropped = gpt2, odd = gpt2, shorter = gpt2;
  masked.masked = true;
  full.half = false;
  dropped.dropout = true;
  odd.head_size = 20;
  shorter.queries = shorter.keys = 128;
  EXPECT_EQ(choose_attention(gpt2), AttentionKernel::kFlash);
  EXPECT_EQ(choose_attention(masked), AttentionKernel::kEfficient);
  EXPECT_EQ(choose_attention(full), AttentionKernel::kEfficient);
  EXPECT_EQ(choose_attention(dropped), AttentionKernel::kMath);
  EXPECT_EQ(choose_attention(odd), AttentionKernel::kMath);
  EXPECT_EQ(choose_attention({.queries = 8, .keys = 8, .head_size = 64}), AttentionKernel::kMath);
  for (const int64_t batch : {1, 4, 16, 22, 32, 500}) {
    EXPECT_GE(padded_batch_backward(batch, 12, gpt2) * 12, kPaddedHeads);
    EXPECT_GE(padded_batch_forward(batch, 12, gpt2) * 12 * 16, kPaddedHeads * 8 / 5);
    EXPECT_EQ(padded_batch_backward(batch, 12, shorter), batch);
  }
  EXPECT_EQ(padded_batch_backward(32, 12, gpt2), 32);
  EXPECT_EQ(padded_batch_forward(4, 12, gpt2), 4);
}

TEST(Attention, RefusesAMaskOfAnotherSizeAndDropoutWithoutAKey) {
  Attention attention, dropping(AttentionOptions{.dropout = 0.1}), causal(AttentionOptions{.causal = true});
  const at::Tensor q = at::ones({4, 2, 6, 8}), shorter = at::ones({4, 2, 5, 8});
  EXPECT_THROW(attention->forward(q, q, q, at::ones({4, 5}, at::kBool)), ConfigError);
  EXPECT_THROW(attention->forward(q, q, q, at::ones({4, 6})), ConfigError);
  EXPECT_THROW(attention->forward(q, q, shorter), ConfigError);
  EXPECT_THROW(attention->forward_packed(q), ConfigError);
  EXPECT_THROW(dropping->forward(q, q, q), ConfigError);
  EXPECT_THROW(causal->forward(q, shorter, shorter), ConfigError);
  EXPECT_THROW(Attention(AttentionOptions{.dropout = 2}), ConfigError);
  const TestPass pass(*attention, 3);
  EXPECT_THROW(attention->forward(q, q, q), ConfigError);
}

}  // namespace
}  // namespace tandem
