#include "nn/pool3d.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "base/errors.h"
#include "nn/test_pass.h"

namespace tandem {
namespace {

struct BoxCase {
  Pool3dOptions options;
  int64_t channels, frames, height, width;
};

const std::vector<BoxCase>& box_cases() {
  static const std::vector<BoxCase> cases{
      {Pool3dOptions{.kernel = {1, 2, 2}}, 8, 3, 6, 8},
      {Pool3dOptions{.kernel = 2}, 5, 5, 6, 7},
      {Pool3dOptions{.kernel = 3, .stride = 2, .padding = 1}, 16, 5, 9, 7},
      {Pool3dOptions{.kernel = {3, 1, 1}, .stride = {1, 1, 1}}, 3, 6, 4, 4},
  };
  return cases;
}

// Rounded to a few values, so that a box has several maxima.
at::Tensor boxes(const BoxCase& c, int rows, bool channels_last, at::ScalarType type = at::kFloat) {
  const at::Tensor x = at::round(test_numbers({rows, c.channels, c.frames, c.height, c.width}, 1) * 2).to(type);
  return channels_last ? x.contiguous(at::MemoryFormat::ChannelsLast3d) : x;
}

at::Tensor box_gradient(const at::Tensor& y) {
  const at::Tensor channel =
      at::arange(y.size(1)).view(y.dim() == 5 ? std::vector<int64_t>{1, -1, 1, 1, 1} : std::vector<int64_t>{1, -1});
  return at::sin(y.detach().to(at::kFloat) * 3 + channel).to(y.scalar_type());
}

template <class Layer>
PassResults run_box(Layer& layer, const at::Tensor& x0, int shards) {
  const auto context = std::make_shared<LayerContext>();
  context->shards = shards;
  layer->bind(context, "pool");
  for (const auto& part : layer->children()) std::dynamic_pointer_cast<ShardAware>(part)->bind(context, "pool.part");
  const at::Tensor x = x0.detach().clone().requires_grad_();
  const at::Tensor y = layer(x);
  y.backward(box_gradient(y));
  return {{y.detach(), x.grad()}, {}};
}

TEST(Pool3d, ShardsInOnePassAndBothMemoryFormatsHaveTheSameBits) {
  for (const BoxCase& c : box_cases())
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
      for (const int shards : {1, 2, 3}) {
        MaxPool3d max(c.options);
        GlobalAvgPool3d mean;
        const at::Tensor x = boxes(c, 2 * shards, true, type), plain = boxes(c, 2 * shards, false, type);
        const auto maxima = [&](int first, int count) {
          return run_box(max, shards_of(x, shards, first, count), count);
        };
        const auto means = [&](int first, int count) {
          return run_box(mean, shards_of(x, shards, first, count), count);
        };
        EXPECT_TRUE(same_in_any_pass(shards, maxima));
        EXPECT_TRUE(same_in_any_pass(shards, means));
        EXPECT_TRUE(same_bits(maxima(0, shards), run_box(max, plain, shards)));
        EXPECT_TRUE(same_bits(means(0, shards), run_box(mean, plain, shards)));
      }
}

TEST(Pool3d, ForwardAndGradientsAreTorchs) {
  for (const BoxCase& c : box_cases())
    for (const bool last : {false, true}) {
      const Pool3dOptions& o = c.options;
      const at::Tensor x0 = boxes(c, 3, last);
      const auto torchs = [&](const auto& pool) {
        const at::Tensor x = x0.detach().contiguous().clone().requires_grad_();
        const at::Tensor y = pool(x);
        y.backward(box_gradient(y));
        return PassResults{{y.detach(), x.grad()}, {}};
      };
      const auto near = [](const PassResults& a, const PassResults& b) {
        return at::allclose(a.rows[0], b.rows[0], 1e-5, 1e-6) && at::allclose(a.rows[1], b.rows[1], 1e-5, 1e-6);
      };
      MaxPool3d max(o);
      GlobalAvgPool3d mean;
      const auto stride = (*o.stride)[0] == 0 ? *o.kernel : *o.stride;
      EXPECT_TRUE(near(run_box(max, x0, 1),
                       torchs([&](const at::Tensor& x) { return at::max_pool3d(x, *o.kernel, stride, *o.padding); })));
      EXPECT_TRUE(near(run_box(mean, x0, 1), torchs([](const at::Tensor& x) { return x.mean({2, 3, 4}); })));
    }
}

TEST(Pool3d, RefusesSizesThatMakeNoPoolAndRowsThatDoNotDivide) {
  EXPECT_THROW(MaxPool3d(Pool3dOptions{.kernel = 3, .padding = 2}), ConfigError);
  EXPECT_THROW(MaxPool3d(Pool3dOptions{.kernel = {1, 0, 2}}), ConfigError);
  MaxPool3d pool(Pool3dOptions{.kernel = 5});
  EXPECT_THROW(pool(torch::randn({2, 3, 4, 8, 8})), ConfigError);
  EXPECT_THROW(pool(torch::randn({2, 3, 8, 8})), ConfigError);
  EXPECT_THROW(run_box(pool, torch::randn({3, 3, 8, 8, 8}), 2), ConfigError);
}

}  // namespace
}  // namespace tandem
