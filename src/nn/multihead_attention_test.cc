#include "nn/multihead_attention.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/errors.h"
#include "nn/test_pass.h"

namespace tandem {
namespace {

// The engine gives all layers of a model one context.
std::shared_ptr<LayerContext> bound_context(MultiheadAttention& layer, int shards, LeafSums* sums) {
  auto context = std::make_shared<LayerContext>();
  context->shards = shards;
  context->sums = sums;
  layer->bind(context, "attn");
  layer->attention->bind(context, "attn.attention");
  layer->out_proj->bind(context, "attn.out_proj");
  return context;
}

TEST(MultiheadAttention, GivesEachShardTheBitsThatItHasAlone) {
  MultiheadAttention layer(24, 3, AttentionOptions{.causal = true});
  for (const int shards : {1, 2, 3, 5}) {
    const at::Tensor x = test_numbers({2 * shards, 6, 24}, 1), dy = test_numbers({2 * shards, 6, 24}, 2);
    EXPECT_TRUE(same_in_any_pass(shards, [&](int first, int count) -> PassResults {
      StoredSums sums;
      const auto context = bound_context(layer, count, &sums);
      at::Tensor mine = shards_of(x, shards, first, count).clone().requires_grad_();
      const at::Tensor y = layer->forward(mine);
      y.backward(shards_of(dy, shards, first, count));
      EXPECT_TRUE(sums.all_came());
      return {{y.detach(), mine.grad()},
              {sums.leaves(layer->in_proj_weight), sums.leaves(layer->in_proj_bias),
               sums.leaves(layer->out_proj->weight), sums.leaves(layer->out_proj->bias)}};
    })) << shards;
  }
}

TEST(MultiheadAttention, IsTorchsWithTheSameParameterNames) {
  MultiheadAttention layer(24, 3);
  torch::nn::MultiheadAttention torchs(torch::nn::MultiheadAttentionOptions(24, 3));
  auto ours = layer->named_parameters();
  {
    const at::NoGradGuard no_grad;
    for (auto& item : torchs->named_parameters()) item.value().copy_(ours[item.key()]);
  }
  EXPECT_EQ(ours.size(), torchs->named_parameters().size());
  at::Tensor x = test_numbers({4, 6, 24}, 1).requires_grad_(), same = x.detach().clone().requires_grad_();
  at::Tensor mask = test_numbers({4, 6}, 3).gt(-0.3);
  mask.select(1, 0).fill_(true);
  const at::Tensor y = layer->forward(x, mask), rows = same.transpose(0, 1);
  const at::Tensor wanted = std::get<0>(torchs->forward(rows, rows, rows, mask.logical_not())).transpose(0, 1);
  EXPECT_TRUE(at::allclose(y, wanted, 1e-5, 1e-5));
  const at::Tensor dy = test_numbers({4, 6, 24}, 2);
  y.backward(dy);
  wanted.backward(dy);
  EXPECT_TRUE(at::allclose(x.grad(), same.grad(), 1e-5, 1e-5));
  for (auto& item : torchs->named_parameters())
    EXPECT_TRUE(at::allclose(ours[item.key()].grad(), item.value().grad(), 1e-4, 1e-5)) << item.key();
}

TEST(MultiheadAttention, RefusesAWidthThatDoesNotDivideByTheHeads) {
  EXPECT_THROW(MultiheadAttention(24, 5), ConfigError);
  MultiheadAttention layer(24, 3);
  EXPECT_THROW(layer->forward(at::ones({2, 6, 23})), ConfigError);
  EXPECT_THROW(layer->forward(at::ones({2, 6, 24}), at::ones({2, 7}, at::kBool)), ConfigError);
}

TEST(MultiheadAttention, OfTheLastTokenIsTheLastRowOfAll) {
  MultiheadAttention layer(24, 3);
  at::Tensor x = test_numbers({4, 6, 24}, 1).requires_grad_(), same = x.detach().clone().requires_grad_();
  const at::Tensor last = layer->forward_last(x), all = layer->forward(same), dy = test_numbers({4, 24}, 2);
  EXPECT_TRUE(at::allclose(last, all.select(1, 5), 1e-5, 1e-6));
  last.backward(dy);
  const at::Tensor gradient = layer->in_proj_weight.grad().clone();
  layer->in_proj_weight.mutable_grad().zero_();
  all.select(1, 5).backward(dy);
  EXPECT_TRUE(at::allclose(x.grad(), same.grad(), 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(gradient, layer->in_proj_weight.grad(), 1e-5, 1e-5));
}

}  // namespace
}  // namespace tandem
