#include "nn/dropout.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/errors.h"
#include "nn/test_pass.h"

namespace tandem {
namespace {

RandomSource dropout_key(int first_shard, int shards) {
  RandomSource key(RandomKey{.seed = 1, .step = 2, .shard = static_cast<uint32_t>(first_shard), .site = 4});
  key.shards = shards;
  return key;
}

TEST(Dropout, GivesEachShardTheMaskThatItHasAlone) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const int shards : {1, 2, 3, 5}) {
      const at::Tensor x = test_numbers({3 * shards, 5, 7}, 1).to(type), other = test_numbers({3 * shards, 5, 7}, 2);
      EXPECT_TRUE(same_in_any_pass(shards, [&](int first, int count) -> PassResults {
        at::Tensor mine = shards_of(x, shards, first, count).clone().requires_grad_();
        at::Tensor residual = shards_of(other, shards, first, count).clone().requires_grad_();
        const RandomSource key = dropout_key(7 + first, count);
        const at::Tensor y = dropout(mine, 0.3, key), sum = dropout_add(mine, residual, 0.3, key);
        EXPECT_TRUE(at::equal(sum, y + residual));
        sum.backward(residual.detach());
        return {{y.detach(), sum.detach(), mine.grad(), residual.grad()}, {}};
      })) << shards;
    }
}

TEST(Dropout, IsTheProductWithTheMaskOfItsKey) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    at::Tensor x = test_numbers({50, 41}, 1).to(type).requires_grad_();
    at::Tensor mask = at::empty({50, 41});
    const RandomSource key = dropout_key(3, 1);
    fill_dropout_mask(mask.data_ptr<float>(), mask.numel(), key, 0, 0.25);
    const at::Tensor y = dropout(x, 0.25, key), dy = test_numbers({50, 41}, 2).to(type);
    EXPECT_TRUE(same_bits(y, x * mask.to(type)));
    y.backward(dy);
    EXPECT_TRUE(same_bits(x.grad(), dy * mask.to(type)));
  }
}

TEST(Dropout, PassesEverythingOnInValidationAndNothingAtOne) {
  const at::Tensor x = test_numbers({4, 4}, 1);
  const RandomSource validation(RandomKey{}, nullptr, /*trains=*/false);
  EXPECT_TRUE(dropout(x, 0.5, validation).is_same(x));
  EXPECT_TRUE(at::equal(dropout_add(x, x, 0.5, validation), x + x));
  EXPECT_EQ(dropout(x, 1, dropout_key(0, 1)).abs().max().item<float>(), 0);
}

TEST(Dropout, RefusesWhatIsNoProbabilityAndRowsThatDoNotDivide) {
  const at::Tensor x = test_numbers({4, 4}, 1);
  EXPECT_THROW(dropout(x, 1.5, dropout_key(0, 1)), ConfigError);
  EXPECT_THROW(dropout(x, 0.5, dropout_key(0, 3)), ConfigError);
  EXPECT_THROW(dropout_add(x, at::ones({4, 5}), 0.5, dropout_key(0, 1)), ConfigError);
}

}  // namespace
}  // namespace tandem
