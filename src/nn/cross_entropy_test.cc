#include "nn/cross_entropy.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "base/errors.h"
#include "nn/linear.h"
#include "nn/test_pass.h"

namespace tandem {
namespace {

at::Tensor some_labels(int64_t rows, int64_t classes) {
  at::Tensor labels = at::empty({rows}, at::kLong);
  for (int64_t i = 0; i < rows; ++i)
    labels.data_ptr<int64_t>()[i] =
        i % 5 == 3 ? int64_t{-100}
                   : random_below(RandomKey{7, 0, 0, 0}, static_cast<uint64_t>(i), static_cast<uint32_t>(classes));
  return labels;
}

struct Losses {
  at::Tensor losses, grad;
};
template <typename Make>
Losses losses_of(const at::Tensor& logits, const Make& make) {
  at::Tensor x = logits.clone().requires_grad_();
  const at::Tensor losses = make(x);
  losses.backward(test_numbers(losses.sizes(), 9));
  return {losses.detach(), x.grad()};
}

TEST(CrossEntropy, OfARowDependsOnThatRowAlone) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const int64_t classes : {3, 1000, 2057}) {
      const int shards = 5;
      const at::Tensor logits = test_numbers({3 * shards, classes}, 1, 4).to(type),
                       labels = some_labels(3 * shards, classes), grads = test_numbers({3 * shards}, 2);
      EXPECT_TRUE(same_in_any_pass(shards, [&](int first, int count) -> PassResults {
        at::Tensor x = shards_of(logits, shards, first, count).clone().requires_grad_();
        const at::Tensor losses = cross_entropy(x, shards_of(labels, shards, first, count));
        losses.backward(shards_of(grads, shards, first, count));
        return {{losses.detach(), x.grad()}, {}};
      })) << classes;
    }
}

TEST(CrossEntropy, IsTorchsWithWeightsAndIgnoredRows) {
  for (const int64_t classes : {2, 10, 1000, 5003}) {
    const at::Tensor logits = test_numbers({31, classes}, 1, 5), labels = some_labels(31, classes);
    for (const at::Tensor& weights : {at::Tensor(), test_numbers({classes}, 3).abs()}) {
      const Losses ours =
          losses_of(logits, [&](const at::Tensor& x) { return cross_entropy(x, labels, {.class_weights = weights}); });
      const Losses torchs = losses_of(logits, [&](const at::Tensor& x) {
        return at::cross_entropy_loss(x, labels, weights, at::Reduction::None, -100);
      });
      EXPECT_TRUE(at::allclose(ours.losses, torchs.losses, 1e-5, 1e-5));
      EXPECT_TRUE(at::allclose(ours.grad, torchs.grad, 1e-5, 1e-6));
      EXPECT_EQ(ours.losses[3].item<float>(), 0);
      EXPECT_EQ(ours.grad[3].abs().max().item<float>(), 0);
    }
  }
}

TEST(CrossEntropy, ReadsLogitsOfHalfWidthAsFloats) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor logits = test_numbers({12, 2057}, 1, 5).to(type), labels = some_labels(12, 2057);
    const auto make = [&](const at::Tensor& x) { return cross_entropy(x, labels); };
    const Losses half = losses_of(logits, make), full = losses_of(logits.to(at::kFloat), make);
    EXPECT_TRUE(same_bits(half.losses, full.losses));
    EXPECT_TRUE(same_bits(half.grad, full.grad.to(type)));
  }
}

TEST(CrossEntropy, HoldsForLargeLogitsAndShowsNaN) {
  at::Tensor logits = at::full({4, 6}, -30000.0f);
  logits[0][2] = 30000.0f;
  logits[1] = 1e30f;
  logits[2][1] = -std::numeric_limits<float>::infinity();
  logits[3][5] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor losses = cross_entropy(logits, at::full({4}, 2, at::kLong));
  EXPECT_EQ(losses[0].item<float>(), 0);
  EXPECT_NEAR(losses[1].item<float>(), std::log(6.0), 1e-5);
  EXPECT_NEAR(losses[2].item<float>(), std::log(5.0), 3e-3);
  EXPECT_TRUE(std::isnan(losses[3].item<float>()));
}

// Of shards [first, first + count): the head's losses, gradient and leaves, in chunks or not.
PassResults run_head(Linear& head, const at::Tensor& x, const at::Tensor& labels, int shards, int first, int count,
                     int64_t chunk) {
  const TestPass pass(*head, count);
  at::Tensor mine = shards_of(x, shards, first, count).clone().requires_grad_();
  const at::Tensor label = shards_of(labels, shards, first, count);
  const at::Tensor losses =
      chunk > 0 ? head_cross_entropy(*head, mine, label, {}, chunk) : cross_entropy(head->forward(mine), label);
  losses.backward(shards_of(test_numbers({x.size(0)}, 2), shards, first, count));
  EXPECT_TRUE(pass.sums.all_came());
  return {{losses.detach(), mine.grad()}, {pass.sums.leaves(head->weight), pass.sums.leaves(head->bias)}};
}

TEST(HeadCrossEntropy, GivesEachShardTheBitsThatItHasAlone) {
  Linear head(6, 21);
  for (const int shards : {1, 2, 3, 5}) {
    const at::Tensor x = test_numbers({10 * shards, 6}, 1), labels = some_labels(10 * shards, 21);
    for (const int64_t chunk : {4, 10, 64})
      EXPECT_TRUE(same_in_any_pass(shards, [&](int first, int count) {
        return run_head(head, x, labels, shards, first, count, chunk);
      })) << shards;
  }
}

TEST(HeadCrossEntropy, IsTheCrossEntropyOfTheHeadsOutput) {
  Linear head(6, 21);
  const at::Tensor x = test_numbers({30, 6}, 1), labels = some_labels(30, 21);
  const PassResults whole = run_head(head, x, labels, 3, 0, 3, 0), chunks = run_head(head, x, labels, 3, 0, 3, 4);
  EXPECT_TRUE(same_bits(whole.rows[0], chunks.rows[0]));
  EXPECT_TRUE(same_bits(whole.rows[1], chunks.rows[1]));
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(at::allclose(whole.leaves[i].flatten(), chunks.leaves[i].flatten(), 1e-5, 1e-5));
  at::Tensor mine = x.clone().requires_grad_();
  head_cross_entropy(*head, mine, labels).sum().backward();
  const at::Tensor found = head->weight.grad().clone();
  head->zero_grad();
  cross_entropy(head->forward(mine), labels).sum().backward();
  EXPECT_TRUE(at::allclose(found, head->weight.grad(), 1e-5, 1e-5));
  EXPECT_THROW(head_cross_entropy(*head, x, labels, {}, 0), ConfigError);
  EXPECT_THROW(head_cross_entropy(*head, at::ones({30, 7}), labels), ConfigError);
  EXPECT_THROW(head_cross_entropy(*head, x, at::full({30}, 21, at::kLong)), ConfigError);
}

TEST(CrossEntropy, RefusesLabelsThatAreNoClassAndOtherShapes) {
  const at::Tensor logits = at::zeros({3, 4});
  EXPECT_THROW(cross_entropy(logits, at::zeros({2}, at::kLong)), ConfigError);
  EXPECT_THROW(cross_entropy(logits, at::zeros({3})), ConfigError);
  EXPECT_THROW(cross_entropy(at::zeros({3, 4, 5}), at::zeros({3}, at::kLong)), ConfigError);
  EXPECT_THROW(cross_entropy(logits, at::zeros({3}, at::kLong), {.class_weights = at::ones({5})}), ConfigError);
  EXPECT_THROW(cross_entropy(logits, at::full({3}, -1, at::kLong)), ConfigError);
  try {
    cross_entropy(logits, at::full({3}, 4, at::kLong));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "cross-entropy was given the label 4 in row 0");
  }
}

}  // namespace
}  // namespace tandem
