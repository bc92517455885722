#include "nn/init.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "nn/dropout.h"
#include "nn/portable_vector.h"

namespace tandem {
namespace {

TEST(InitWeights, DependOnTheSeedAloneAndNotOnTorchsGenerator) {
  use_portable_vector();
  auto weights = [](uint64_t torch_seed, uint64_t seed) {
    torch::manual_seed(torch_seed);
    torch::nn::Sequential model(torch::nn::Linear(5, 7), torch::nn::LayerNorm(torch::nn::LayerNormOptions({7})),
                                torch::nn::Linear(7, 3));
    init_weights(*model, seed);
    std::vector<at::Tensor> flat;
    for (const auto& p : model->parameters()) flat.push_back(p.detach().flatten());
    return at::cat(flat);
  };
  EXPECT_TRUE(at::equal(weights(1, 9), weights(2, 9)));
  EXPECT_FALSE(at::equal(weights(1, 9), weights(1, 10)));
}

TEST(InitWeights, FollowTorchsRules) {
  torch::nn::Linear linear(400, 300);
  init_weights(*linear, 3);
  const double bound = 1 / std::sqrt(400.0);
  EXPECT_LE(linear->weight.abs().max().item<float>(), bound);
  EXPECT_NEAR(linear->weight.std().item<float>(), bound / std::sqrt(3.0), bound * 0.01);
  EXPECT_NEAR(linear->weight.mean().item<float>(), 0, bound * 0.01);
}

TEST(InitWeights, AnLstmCanBeMadeOnThisCpu) {  // dies with SIGILL on ARM without SVE unless portable_vector.cc works
  use_portable_vector();
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(6, 8).num_layers(2).batch_first(true));
  init_weights(*lstm, 1);
  const auto [output, state] = lstm->forward(at::ones({2, 5, 6}));
  EXPECT_EQ(output.sizes(), (std::vector<int64_t>{2, 5, 8}));
}

TEST(Dropout, KeepsTheMeanAndTheMaskFollowsItsKey) {
  const at::Tensor x = at::ones({100, 1000});
  const RandomKey key{.seed = 1, .step = 2, .shard = 3, .site = 4};
  const at::Tensor y = dropout(x, 0.25, key);
  EXPECT_NEAR(y.mean().item<float>(), 1, 0.01);
  EXPECT_TRUE(at::equal(y, dropout(x, 0.25, key)));
  for (const RandomKey& other :
       {RandomKey{2, 2, 3, 4}, RandomKey{1, 3, 3, 4}, RandomKey{1, 2, 4, 4}, RandomKey{1, 2, 3, 5}})
    EXPECT_FALSE(at::equal(y, dropout(x, 0.25, other)));
}

}  // namespace
}  // namespace tandem
