#include "nn/pool2d.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <limits>
#include <vector>

#include "base/errors.h"
#include "nn/test_pass.h"

namespace tandem {
namespace {

struct PoolCase {
  Pool2dOptions options;
  int64_t channels, height, width;
};

const std::vector<PoolCase>& pool_cases() {
  static const std::vector<PoolCase> cases{
      {Pool2dOptions{.kernel = 3, .stride = 2, .padding = 1}, 16, 14, 14},
      {Pool2dOptions{.kernel = 3, .stride = 2, .padding = 1}, 5, 15, 9},
      {Pool2dOptions{.kernel = 2}, 8, 7, 6},
      {Pool2dOptions{.kernel = {2, 5}, .stride = torch::ExpandingArray<2>({3, 1}), .padding = {0, 2}}, 3, 11, 13},
      {Pool2dOptions{.kernel = 1, .stride = 2}, 4, 5, 5},
      {Pool2dOptions{.kernel = 3, .stride = 1, .padding = 1, .count_padding = false}, 19, 6, 5}};
  return cases;
}

// Rounded to a few values, so that a window has several maxima.
at::Tensor pool_images(const PoolCase& c, int rows, bool channels_last, at::ScalarType type = at::kFloat) {
  const at::Tensor x = at::round(test_numbers({rows, c.channels, c.height, c.width}, 1) * 2).to(type);
  return channels_last ? x.contiguous(at::MemoryFormat::ChannelsLast) : x;
}

template <class Layer>
PassResults run_pool_test(Layer& layer, const at::Tensor& x0, int shards) {
  const TestPass pass(*layer, shards);
  const at::Tensor x = x0.detach().clone().requires_grad_();
  const at::Tensor y = layer(x);
  y.backward(at::sin(y.detach() * 3 + at::arange(y.size(1)).view(y.dim() == 4 ? std::vector<int64_t>{1, -1, 1, 1}
                                                                              : std::vector<int64_t>{1, -1}))
                 .to(y.scalar_type()));
  return {{y.detach(), x.grad()}, {}};
}

template <class Layer>
void expect_same_in_any_pass(const std::function<Layer()>& made, const PoolCase& c) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const int shards : {1, 2, 3, 5}) {
      Layer layer = made();
      const at::Tensor x = pool_images(c, 2 * shards, true, type), plain = pool_images(c, 2 * shards, false, type);
      const auto run = [&](int first, int count) {
        return run_pool_test(layer, shards_of(x, shards, first, count), count);
      };
      EXPECT_TRUE(same_in_any_pass(shards, run));
      const PassResults whole = run(0, shards);
      EXPECT_TRUE(same_bits(whole, run_pool_test(layer, plain, shards))) << "memory formats differ";
      layer->use_one_by_one();
      EXPECT_TRUE(same_bits(whole, run(0, shards)));
    }
}

TEST(Pool2d, ShardsInOnePassHaveTheBitsThatTheyHaveAlone) {
  for (const PoolCase& c : pool_cases()) {
    expect_same_in_any_pass<MaxPool2d>([&] { return MaxPool2d(c.options); }, c);
    expect_same_in_any_pass<AvgPool2d>([&] { return AvgPool2d(c.options); }, c);
    expect_same_in_any_pass<GlobalAvgPool2d>([] { return GlobalAvgPool2d(); }, c);
  }
}

PassResults torchs_pool(const std::function<at::Tensor(const at::Tensor&)>& pool, const at::Tensor& x0) {
  const at::Tensor x = x0.detach().clone().requires_grad_();
  const at::Tensor y = pool(x);
  y.backward(at::sin(y.detach() * 3 + at::arange(y.size(1)).view(y.dim() == 4 ? std::vector<int64_t>{1, -1, 1, 1}
                                                                              : std::vector<int64_t>{1, -1})));
  return {{y.detach(), x.grad()}, {}};
}

TEST(Pool2d, ForwardAndGradientsAreTorchs) {
  for (const PoolCase& c : pool_cases())
    for (const bool last : {false, true}) {
      const at::Tensor x = pool_images(c, 3, last);
      const Pool2dOptions& o = c.options;
      const auto stride = (*o.stride)[0] == 0 ? *o.kernel : *o.stride;
      const auto near = [](const PassResults& a, const PassResults& b) {
        return at::allclose(a.rows[0], b.rows[0], 1e-5, 1e-6) && at::allclose(a.rows[1], b.rows[1], 1e-5, 1e-6);
      };
      MaxPool2d max(o);
      AvgPool2d mean(o);
      GlobalAvgPool2d global;
      EXPECT_TRUE(
          near(run_pool_test(max, x, 1),
               torchs_pool([&](const at::Tensor& t) { return at::max_pool2d(t, *o.kernel, stride, *o.padding); }, x)));
      EXPECT_TRUE(near(run_pool_test(mean, x, 1), torchs_pool(
                                                      [&](const at::Tensor& t) {
                                                        return at::avg_pool2d(t, *o.kernel, stride, *o.padding, false,
                                                                              o.count_padding);
                                                      },
                                                      x)));
      EXPECT_TRUE(near(run_pool_test(global, x, 1), torchs_pool(
                                                        [](const at::Tensor& t) {
                                                          return t.mean({2, 3});
                                                        },
                                                        x)));
    }
}

TEST(MaxPool2d, PassesNaNOnAndItsGradientBack) {
  at::Tensor x = torch::zeros({1, 1, 4, 4});
  x[0][0][1][2] = std::numeric_limits<float>::quiet_NaN();
  x = x.clone().requires_grad_();
  MaxPool2d pool(Pool2dOptions{.kernel = 2});
  const at::Tensor y = pool(x);
  EXPECT_TRUE(std::isnan(y[0][0][0][1].item<float>()));
  y.backward(torch::ones_like(y));
  EXPECT_EQ(x.grad()[0][0][1][2].item<float>(), 1);
}

TEST(Pool2d, RefusesSizesThatMakeNoPoolAndRowsThatDoNotDivide) {
  EXPECT_THROW(MaxPool2d(Pool2dOptions{.kernel = 3, .padding = 2}), ConfigError);
  EXPECT_THROW(MaxPool2d(Pool2dOptions{.kernel = 17}), ConfigError);
  EXPECT_THROW(AvgPool2d(Pool2dOptions{.kernel = 0}), ConfigError);
  MaxPool2d pool(Pool2dOptions{.kernel = 5});
  EXPECT_THROW(pool(torch::randn({2, 3, 4, 8})), ConfigError);
  EXPECT_THROW(pool(torch::randn({2, 3, 4})), ConfigError);
  pool->pass().shards = 2;
  EXPECT_THROW(pool(torch::randn({3, 3, 8, 8})), ConfigError);
}

}  // namespace
}  // namespace tandem
