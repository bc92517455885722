#include "rl/dqn/q_net.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/errors.h"
#include "base/temp_dir.h"
#include "nn/init.h"
#include "rl/dqn/dueling_net.h"

namespace tandem {
namespace {

SafetensorsFile saved(DuelingNet& net, const TempDir& dir) {
  std::vector<TensorView> views;
  for (auto& item : net->named_parameters()) {
    const at::Tensor& t = item.value();
    views.push_back({item.key(),
                     DType::kF32,
                     t.sizes().vec(),
                     {static_cast<const std::byte*>(t.const_data_ptr()), static_cast<size_t>(t.numel()) * 4}});
  }
  write_safetensors(FileSystem::real(), dir.path() / "model.safetensors", views);
  return SafetensorsFile::read(FileSystem::real(), dir.path() / "model.safetensors");
}

at::Tensor some_states(int64_t n, int64_t width) {
  at::Tensor states = at::empty({n, width});
  for (int64_t i = 0; i < states.numel(); ++i)
    states.data_ptr<float>()[i] = random_uniform(RandomKey{3, 0, 0, 1}, i) * 4 - 2;
  return states;
}

TEST(QNet, GivesWhatTheNetOfLibtorchGives) {
  at::NoGradGuard no_grad;
  for (const bool attention : {false, true}) {
    NetSettings settings;
    settings.hidden = {96, 64, 32};
    settings.head = 24;
    settings.attention = attention;
    settings.tokens = 4;
    settings.attention_heads = 2;
    DuelingNet net(20, 7, settings);
    init_weights(*net, 11, 0);
    for (auto& item : net->named_parameters())  // norms and biases start as ones and zeros, which would hide a mix-up
      if (item.value().dim() == 1) item.value().add_(some_states(1, item.value().numel())[0], 0.1);
    const TempDir dir;
    const QNet plain(saved(net, dir), settings.attention_heads, "it");
    EXPECT_EQ(plain.observation_size(), 20);
    EXPECT_EQ(plain.actions(), 7);
    const at::Tensor states = some_states(37, 20), expected = net->forward(states);
    at::Tensor all = at::empty({37, 7}), one = at::empty({7});
    plain.q_values(states.data_ptr<float>(), 37, all.data_ptr<float>());
    EXPECT_LT((all - expected).abs().max().item<float>(), 2e-5) << "attention " << attention;
    EXPECT_GT((all - all.mean(0)).abs().max().item<float>(), 0.05);
    for (int64_t r = 0; r < 37; ++r) {
      plain.q_values(states[r].data_ptr<float>(), 1, one.data_ptr<float>());
      EXPECT_TRUE(at::equal(one, all[r])) << "alone and in a batch: the same bits";
    }
  }
}

TEST(QNet, RefusesWeightsOfAnotherKind) {
  NetSettings settings;
  settings.hidden = {8};
  settings.head = 4;
  DuelingNet net(5, 3, settings);
  TempDir dir;
  const SafetensorsFile good = saved(net, dir);
  std::vector<TensorView> views = good.tensors();
  const auto with = [&](const std::vector<TensorView>& tensors) {
    const TempDir other;
    write_safetensors(FileSystem::real(), other.path() / "m", tensors);
    return SafetensorsFile::read(FileSystem::real(), other.path() / "m");
  };
  for (size_t i = 0; i < views.size(); ++i) {
    std::vector<TensorView> fewer = views;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_THROW(QNet(with(fewer), 1, "it"), CheckpointError) << "without " << views[i].name;
    std::vector<TensorView> flat = views;
    flat[i].shape = {static_cast<int64_t>(flat[i].bytes.size() / 4), 1, 1};
    EXPECT_THROW(QNet(with(flat), 1, "it"), CheckpointError) << views[i].name;
  }
}

}  // namespace
}  // namespace tandem
