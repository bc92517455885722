#include "nn/embedding.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/errors.h"
#include "nn/test_pass.h"

namespace tandem {
namespace {

at::Tensor some_tokens(at::IntArrayRef sizes, uint32_t below) {
  at::Tensor tokens = at::empty(sizes, at::kLong);
  for (int64_t i = 0; i < tokens.numel(); ++i)
    tokens.data_ptr<int64_t>()[i] = random_below(RandomKey{6, 0, 0, 0}, static_cast<uint64_t>(i), below);
  return tokens;
}

TEST(Embedding, GivesEachShardTheBitsThatItHasAlone) {
  for (const int shards : {1, 2, 3, 5}) {
    Embedding embedding(11, 6);
    const at::Tensor tokens = some_tokens({4 * shards, 9}, 11), dy = test_numbers({4 * shards, 9, 6}, 1);
    EXPECT_TRUE(same_in_any_pass(shards, [&](int first, int count) -> PassResults {
      const TestPass pass(*embedding, count);
      const at::Tensor y = embedding->forward(shards_of(tokens, shards, first, count));
      y.backward(shards_of(dy, shards, first, count));
      EXPECT_TRUE(pass.sums.all_came());
      return {{y.detach()}, {pass.sums.leaves(embedding->weight)}};
    })) << shards;
  }
}

TEST(Embedding, IsTorchsAndSoAreItsGradientsWithoutAnEngine) {
  Embedding embedding(50, 16, 3);
  torch::nn::Embedding torchs(torch::nn::EmbeddingOptions(50, 16).padding_idx(3));
  {
    const at::NoGradGuard no_grad;
    EXPECT_EQ(embedding->weight[3].abs().max().item<float>(), 0);
    torchs->weight.copy_(embedding->weight);
  }
  const at::Tensor tokens = some_tokens({7, 40}, 50), dy = test_numbers({7, 40, 16}, 2);
  const at::Tensor y = embedding->forward(tokens), wanted = torchs->forward(tokens);
  EXPECT_TRUE(at::equal(y, wanted));
  y.backward(dy);
  wanted.backward(dy);
  EXPECT_TRUE(at::allclose(embedding->weight.grad(), torchs->weight.grad(), 1e-5, 1e-5));
  EXPECT_EQ(embedding->weight.grad()[3].abs().max().item<float>(), 0);
}

TEST(Embedding, OneShardAfterTheOtherInsideAPassGivesTheSameBits) {
  const at::Tensor tokens = some_tokens({6, 9}, 11), dy = test_numbers({6, 9, 6}, 1);
  std::vector<at::Tensor> leaves;
  for (const bool apart : {false, true}) {
    Embedding embedding(11, 6);
    if (apart) embedding->use_one_by_one();
    const TestPass pass(*embedding, 3);
    embedding->forward(tokens).backward(dy);
    leaves.push_back(pass.sums.leaves(embedding->weight));
  }
  EXPECT_TRUE(same_bits(leaves[0], leaves[1]));
}

TEST(Embedding, StaysFloatUnderAutocast) {
  Embedding embedding(5, 4);
  const TestAutocast autocast;
  EXPECT_EQ(embedding->forward(some_tokens({3}, 5)).scalar_type(), at::kFloat);
}

TEST(Embedding, RefusesTokensThatItHasNotAndTokensThatAreNoIntegers) {
  Embedding embedding(5, 4);
  embedding->bind(std::make_shared<LayerContext>(), "wte");
  EXPECT_THROW(embedding->forward(at::ones({3})), ConfigError);
  EXPECT_THROW(embedding->forward(at::full({3}, -1, at::kLong)), ConfigError);
  EXPECT_THROW(Embedding(5, 4, 5), ConfigError);
  try {
    embedding->forward(at::full({3}, 5, at::kLong));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "wte (an embedding) was given the token 5");
  }
}

}  // namespace
}  // namespace tandem
