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

at::Tensor row_numbers(const std::vector<int64_t>& ids) { return at::tensor(ids, at::kLong); }

TEST(DropoutRows, ARowHasTheMaskOfItsIdInAnyBatchAndAtAnyStep) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const int64_t width : {3, 8, 64, 1500}) {
      const at::Tensor x = at::ones({4, width}).to(type);
      RandomSource key = dropout_key(3, 1);
      const at::Tensor y = dropout_rows(x, 0.4, key, row_numbers({7, 1'000'000'007, 0, 12}));
      key.step = 99;
      const at::Tensor again = dropout_rows(x.narrow(0, 0, 3), 0.4, key, row_numbers({12, 7, 13}));
      EXPECT_TRUE(same_bits(again[0], y[3]));
      EXPECT_TRUE(same_bits(again[1], y[0]));
      if (width >= 64) {
        EXPECT_FALSE(same_bits(again[2], y[3])) << "the next id has a mask of its own";
        key.site = 5;
        EXPECT_FALSE(same_bits(dropout_rows(x, 0.4, key, row_numbers({7, 8, 9, 10}))[0], y[0])) << "another site";
      }
    }
}

TEST(DropoutRows, IsTheProductWithTheMaskOfItsIdForwardAndBackward) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    at::Tensor x = test_numbers({3, 5, 9}, 1).to(type).requires_grad_();
    RandomSource key = dropout_key(3, 1);
    RandomKey stream = key;
    stream.step = 0;
    const std::vector<int64_t> ids{40, 2, 40};
    at::Tensor mask = at::empty({3, 5, 9});
    for (int64_t row = 0; row < 3; ++row)
      fill_dropout_mask(mask[row].data_ptr<float>(), 45, stream,
                        static_cast<uint64_t>(ids[static_cast<size_t>(row)] * 45), 0.25);
    const at::Tensor y = dropout_rows(x, 0.25, key, row_numbers(ids)), dy = test_numbers({3, 5, 9}, 2).to(type);
    EXPECT_TRUE(same_bits(y, x * mask.to(type)));
    y.backward(dy);
    EXPECT_TRUE(same_bits(x.grad(), dy * mask.to(type)));
  }
}

TEST(DropoutRows, GivesEachShardTheMasksThatItHasAlone) {
  for (const int shards : {1, 2, 3, 5}) {
    const at::Tensor x = test_numbers({3 * shards, 5, 7}, 1),
                     ids = at::arange(3 * shards, at::kLong).mul(11).remainder(6);
    EXPECT_TRUE(same_in_any_pass(shards, [&](int first, int count) -> PassResults {
      at::Tensor mine = shards_of(x, shards, first, count).clone().requires_grad_();
      const at::Tensor y = dropout_rows(mine, 0.3, dropout_key(7 + first, count), shards_of(ids, shards, first, count));
      y.backward(mine.detach());
      return {{y.detach(), mine.grad()}, {}};
    })) << shards;
  }
  const at::Tensor y = dropout_rows(at::ones({2, 64}), 0.5, dropout_key(0, 2), row_numbers({4, 4}));
  EXPECT_FALSE(same_bits(y[0], y[1])) << "two shards have two streams";
}

TEST(DropoutRows, KeepsTheRateItIsAskedFor) {
  const at::Tensor ids = at::arange(500, at::kLong);
  for (const double p : {0.1, 0.5, 0.9}) {
    const at::Tensor y = dropout_rows(at::ones({500, 200}), p, dropout_key(1, 1), ids);
    EXPECT_NEAR(y.ne(0).to(at::kFloat).mean().item<double>(), 1 - p, 0.006);
    EXPECT_NEAR(y.max().item<double>(), 1 / (1 - p), 1e-5);
  }
}

TEST(DropoutRows, PassesEverythingOnInValidationAndRefusesWhatAreNoRowIds) {
  const at::Tensor x = test_numbers({4, 4}, 1), ids = row_numbers({1, 2, 3, 4});
  EXPECT_TRUE(dropout_rows(x, 0.5, RandomSource(RandomKey{}, nullptr, /*trains=*/false), ids).is_same(x));
  EXPECT_EQ(dropout_rows(at::empty({0, 4}), 0.5, dropout_key(0, 1), row_numbers({})).size(0), 0);
  EXPECT_THROW(dropout_rows(x, 0.5, dropout_key(0, 1), row_numbers({1, 2, 3})), ConfigError);
  EXPECT_THROW(dropout_rows(x, 0.5, dropout_key(0, 1), ids.to(at::kFloat)), ConfigError);
  EXPECT_THROW(dropout_rows(x, 0.5, dropout_key(0, 1), ids.view({2, 2})), ConfigError);
  EXPECT_THROW(dropout_rows(x, -1, dropout_key(0, 1), ids), ConfigError);
}

}  // namespace
}  // namespace tandem
