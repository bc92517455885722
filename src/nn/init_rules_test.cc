#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "base/errors.h"
#include "nn/channels_last.h"
#include "nn/conv2d.h"
#include "nn/embedding.h"
#include "nn/init.h"
#include "nn/linear.h"
#include "nn/portable_vector.h"
#include "nn/tie_weights.h"

namespace tandem {
namespace {

struct Block : torch::nn::Module {
  Block()
      : c_fc(register_module("c_fc", torch::nn::Linear(64, 256))),
        c_proj(register_module("c_proj", torch::nn::Linear(256, 64))),
        norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({64})))) {}
  torch::nn::Linear c_fc, c_proj;
  torch::nn::LayerNorm norm;
};

struct SmallGpt : torch::nn::Module {
  // The same model, its parts made and registered in two orders.
  explicit SmallGpt(bool backwards = false) {
    const auto embedding = [&] { wte = register_module("wte", torch::nn::Embedding(300, 64)); };
    const auto blocks = [&] { h = register_module("h", torch::nn::ModuleList(Block(), Block())); };
    if (backwards) blocks();
    embedding();
    if (!backwards) blocks();
  }
  torch::nn::Embedding wte{nullptr};
  torch::nn::ModuleList h{nullptr};
};

constexpr int kLayers = 12;

InitRules gpt2_rules() {
  return InitRules()
      .kind("Linear", "weight", init::normal(0.02))
      .kind("Embedding", "weight", init::normal(0.02))
      .name("*.bias", init::zeros())
      .name("*.c_proj.weight", init::normal(0.02 / std::sqrt(2.0 * kLayers)));
}

double deviation(const at::Tensor& t) { return t.to(at::kDouble).std().item<double>(); }

// A sample deviation of n normal numbers is off by 1 / sqrt(2 n) of itself; five of those.
void expect_normal(const at::Tensor& t, double sigma) {
  const double n = static_cast<double>(t.numel());
  EXPECT_NEAR(deviation(t), sigma, 5 * sigma / std::sqrt(2 * n));
  EXPECT_NEAR(t.to(at::kDouble).mean().item<double>(), 0, 5 * sigma / std::sqrt(n));
}

void expect_uniform(const at::Tensor& t, double bound) {
  EXPECT_LE(t.abs().max().item<float>(), static_cast<float>(bound));
  EXPECT_GT(t.abs().max().item<float>(), 0.99 * bound);
  EXPECT_NEAR(deviation(t), bound / std::sqrt(3.0), 0.02 * bound);
}

at::Tensor drawn(const std::vector<int64_t>& sizes, const InitialValues& values) {
  torch::nn::ParameterDict one;
  one->insert("p", at::zeros(sizes));
  init_weights(*one, InitRules().name("p", values), 4);
  return one->get("p").detach();
}

TEST(InitRules, Gpt2sRulesAreFourLinesWithItsResidualScaling) {
  const auto model = std::make_shared<SmallGpt>();
  init_weights(*model, gpt2_rules(), 7);
  const auto named = model->named_parameters();
  expect_normal(named["wte.weight"], 0.02);
  expect_normal(named["h.1.c_fc.weight"], 0.02);
  expect_normal(named["h.1.c_proj.weight"], 0.02 / std::sqrt(24.0));
  EXPECT_EQ(named["h.0.c_fc.bias"].abs().max().item<float>(), 0);
  EXPECT_TRUE(at::equal(named["h.0.norm.weight"], at::ones({64}))) << "torch's default where no rule matches";
}

TEST(InitRules, BitsFollowTheNameAndTheSeedNotTheOrderOfConstruction) {
  const auto drawn_for = [](bool backwards, uint64_t seed) {
    const auto model = std::make_shared<SmallGpt>(backwards);
    init_weights(*model, gpt2_rules(), seed);
    return model->named_parameters();
  };
  const auto one = drawn_for(false, 7), other = drawn_for(true, 7), seeded = drawn_for(false, 8);
  EXPECT_NE(one.keys(), other.keys());
  for (const auto& item : one) EXPECT_TRUE(at::equal(item.value(), other[item.key()])) << item.key();
  EXPECT_FALSE(at::equal(one["wte.weight"], seeded["wte.weight"]));
  EXPECT_FALSE(at::equal(one["h.0.c_fc.weight"], one["h.1.c_fc.weight"]));
}

TEST(InitRules, FansArePyTorchs) {
  const auto expect = [](const torch::nn::Module& module, int64_t in, int64_t out) {
    const at::Tensor weight = module.named_parameters()["weight"];
    const Fans fans = fans_of(weight.sizes().vec());
    const auto [torch_in, torch_out] = torch::nn::init::_calculate_fan_in_and_fan_out(weight);
    EXPECT_EQ(fans.in, in);
    EXPECT_EQ(fans.out, out);
    EXPECT_EQ(fans.in, torch_in);
    EXPECT_EQ(fans.out, torch_out);
  };
  expect(*torch::nn::Linear(5, 7), 5, 7);
  expect(*torch::nn::Conv2d(torch::nn::Conv2dOptions(6, 8, 3)), 54, 72);
  expect(*torch::nn::Conv2d(torch::nn::Conv2dOptions(6, 8, 3).groups(2)), 27, 72);
  expect(*torch::nn::Conv3d(torch::nn::Conv3dOptions(2, 4, {3, 5, 7})), 210, 420);
  expect(*torch::nn::ConvTranspose2d(torch::nn::ConvTranspose2dOptions(6, 8, 3)), 72, 54);
  expect(*torch::nn::ConvTranspose2d(torch::nn::ConvTranspose2dOptions(6, 8, 3).groups(2)), 36, 54);
}

TEST(InitRules, EachDistributionHasItsMomentsAndBounds) {
  const std::vector<int64_t> sizes{64, 32, 3, 3};  // fan in 288, fan out 576
  expect_normal(drawn(sizes, init::kaiming_normal()), std::sqrt(2.0 / 288));
  expect_normal(drawn(sizes, init::kaiming_normal(Fan::kOut)), std::sqrt(2.0 / 576));
  expect_uniform(drawn(sizes, init::kaiming_uniform()), std::sqrt(6.0 / 288));
  expect_uniform(drawn(sizes, init::kaiming_uniform(Fan::kOut, init::leaky_relu_gain(std::sqrt(5.0)))),
                 1 / std::sqrt(576.0));
  expect_normal(drawn(sizes, init::xavier_normal()), std::sqrt(2.0 / 864));
  expect_uniform(drawn(sizes, init::xavier_uniform(2)), 2 * std::sqrt(6.0 / 864));
  expect_uniform(drawn(sizes, init::uniform(-0.3, 0.3)), 0.3);
  EXPECT_TRUE(at::equal(drawn({7}, init::ones()), at::ones({7})));
  EXPECT_TRUE(at::equal(drawn({7}, init::constant(-2)), at::full({7}, -2.0f)));
}

TEST(InitRules, TorchsDefaultsAreTorchs) {
  use_portable_vector();
  const auto weight_of = [](torch::nn::Module& module, const std::string& name) {
    init_weights(module, InitRules().name("*", init::torch_default()), 5);
    return module.named_parameters()[name].detach();
  };
  // torch's own layers within the same bound, by their largest value.
  const auto expect = [&](auto layer, const std::string& name, double bound) {
    EXPECT_LE(layer->named_parameters()[name].abs().max().template item<double>(), bound * (1 + 1e-6));
    expect_uniform(weight_of(*layer, name), bound);
  };
  expect(torch::nn::Linear(400, 300), "weight", 1 / 20.0);
  expect(torch::nn::Conv2d(torch::nn::Conv2dOptions(32, 64, 5)), "weight", 1 / std::sqrt(800.0));
  expect(torch::nn::ConvTranspose2d(torch::nn::ConvTranspose2dOptions(32, 64, 5)), "weight", 1 / std::sqrt(1600.0));
  expect(torch::nn::LSTM(torch::nn::LSTMOptions(50, 64).num_layers(2)), "weight_ih_l1", 1 / 8.0);
  expect(torch::nn::GRU(torch::nn::GRUOptions(50, 64)), "weight_hh_l0", 1 / 8.0);
  expect(torch::nn::MultiheadAttention(torch::nn::MultiheadAttentionOptions(64, 4)), "in_proj_weight",
         std::sqrt(6.0 / (64 + 192)));
  torch::nn::Embedding embedding(torch::nn::EmbeddingOptions(300, 50).padding_idx(3));
  expect_normal(weight_of(*embedding, "weight").narrow(0, 4, 296), 1);
  EXPECT_EQ(embedding->weight[3].abs().max().item<float>(), 0);
}

TEST(InitRules, ARuleThatMatchesNothingAndAFanOfAVectorAreRefused) {
  const auto model = std::make_shared<SmallGpt>();
  try {
    init_weights(*model, InitRules().name("*.c_prj.weight", init::zeros()), 1);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "the rule for initial weights for '*.c_prj.weight' matches no parameter of the model");
    EXPECT_NE(error.why().find("h.0.c_proj.weight (Linear)"), std::string::npos) << error.why();
  }
  try {
    init_weights(*model, InitRules().kind("Linear", "*", init::kaiming_normal()), 1);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "no initial values for parameter 'h.0.c_fc.bias'");
  }
  EXPECT_THROW(init::normal(-0.1), ConfigError);
  EXPECT_THROW(init::uniform(1, 0), ConfigError);
  EXPECT_THROW(init::normal(NAN), ConfigError);
}

TEST(InitRules, ChannelsLastMemoryHoldsTheSameNumbers) {
  torch::nn::Conv2d plain(torch::nn::Conv2dOptions(6, 8, 3)), last(torch::nn::Conv2dOptions(6, 8, 3));
  use_channels_last(*last);
  init_weights(*plain, InitRules().name("weight", init::kaiming_normal()), 2);
  init_weights(*last, InitRules().name("weight", init::kaiming_normal()), 2);
  EXPECT_TRUE(last->weight.is_contiguous(at::MemoryFormat::ChannelsLast) && !last->weight.is_contiguous());
  EXPECT_TRUE(at::equal(plain->weight, last->weight));
}

TEST(TieWeights, TheLayerUsesAndRegistersTheOthersWeight) {
  torch::nn::Embedding wte(30, 8);
  torch::nn::Linear head(torch::nn::LinearOptions(8, 30).bias(false)), odd(8, 29);
  tie_weights(head, wte);
  EXPECT_TRUE(head->weight.is_same(wte->weight));
  EXPECT_TRUE(head->named_parameters()["weight"].is_same(wte->weight));
  try {
    tie_weights(odd, wte);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "parameter 'weight' of torch::nn::LinearImpl can't be tied: it is [29, 8], the other [30, 8]");
  }
}

TEST(InitRules, LayersOfOursBeginAsTorchsOfTheSameName) {
  const auto equal_weights = [](torch::nn::Module& ours, torch::nn::Module& torchs, const InitRules& rules) {
    bool equal = init_weights(ours, 5) == init_weights(torchs, 5);
    for (const bool by_rules : {false, true}) {
      if (by_rules) init_weights(ours, rules, 6), init_weights(torchs, rules, 6);
      for (const auto& item : torchs.named_parameters())
        equal = equal && at::equal(item.value(), ours.named_parameters()[item.key()]);
    }
    return equal;
  };
  Linear linear(12, 7);
  torch::nn::Linear torchs_linear(12, 7);
  EXPECT_TRUE(equal_weights(*linear, *torchs_linear, InitRules()));
  EXPECT_TRUE(equal_weights(*linear, *torchs_linear, InitRules().kind("Linear", "weight", init::normal(0.02))));
  EXPECT_LT(linear->weight.std().item<double>(), 0.03);
  Conv2d conv(Conv2dOptions{.in = 4, .out = 6, .kernel = 3});
  torch::nn::Conv2d torchs_conv(torch::nn::Conv2dOptions(4, 6, 3));
  EXPECT_TRUE(equal_weights(*conv, *torchs_conv, InitRules().kind("Conv2d", "weight", init::kaiming_normal())));
  Embedding embedding(30, 8, 3);
  torch::nn::Embedding torchs_embedding(torch::nn::EmbeddingOptions(30, 8).padding_idx(3));
  EXPECT_TRUE(equal_weights(*embedding, *torchs_embedding, InitRules().kind("Embedding", "*", init::normal(0.02))));
  EXPECT_EQ(embedding->weight[3].abs().sum().item<float>(), 0);
}

}  // namespace
}  // namespace tandem
