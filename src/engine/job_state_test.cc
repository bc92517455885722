// Tied and channels-last parameters, from the layout to the checkpoint and back; initial weights of a recipe.
#include "engine/job_state.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/temp_dir.h"
#include "checkpoint/store.h"
#include "engine/determinism.h"
#include "engine/snapshot.h"
#include "engine/supervised.h"
#include "engine/train_loop.h"
#include "nn/channels_last.h"
#include "nn/tie_weights.h"

namespace tandem {
namespace {

constexpr int64_t kWords = 11, kWidth = 6, kSentences = 24;

// A language model in small: embedding, a layer, and the embedding again as the output layer.
struct TiedNet : torch::nn::Module {
  explicit TiedNet(bool tied = true)
      : wte(register_module("wte", torch::nn::Embedding(kWords, kWidth))),
        mid(register_module("mid", torch::nn::Linear(kWidth, kWidth))),
        head(register_module("head", torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWords).bias(false)))) {
    if (tied) tie_weights(head, wte);
  }
  at::Tensor forward(const at::Tensor& words) { return head(at::tanh(mid(wte(words)))); }
  torch::nn::Embedding wte;
  torch::nn::Linear mid, head;
};

struct ConvNet : torch::nn::Module {
  explicit ConvNet(bool channels_last)
      : conv(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 5, 3).padding(1)))),
        deep(register_module("deep", torch::nn::Conv3d(torch::nn::Conv3dOptions(2, 2, 2)))),
        out(register_module("out", torch::nn::Linear(5 * 16 + 2 * 2 * 3 * 3, kWords))) {
    if (channels_last) use_channels_last(*this);
  }
  at::Tensor forward(const at::Tensor& words) {
    const at::Tensor picture = at::sin(words.to(at::kFloat).view({-1, 1}) * at::arange(1, 49).view({1, 48}));
    const at::Tensor flat = at::relu(conv(picture.view({-1, 3, 4, 4}))).flatten(1);
    const at::Tensor solid = at::cat({picture, picture * 2}, 1).view({-1, 2, 3, 4, 4});
    return out(at::cat({flat, at::relu(deep(solid)).flatten(1)}, 1));
  }
  torch::nn::Conv2d conv;
  torch::nn::Conv3d deep;
  torch::nn::Linear out;
};

struct Words : Dataset {
  int64_t size() const override { return kSentences; }
  std::vector<DataField> fields() const override { return {{"word", at::kLong, {}}, {"next", at::kLong, {}}}; }
  void load_into(SampleWriter& out, const RandomKey&) const override {
    out.put<int64_t>(0, out.sample() % kWords);
    out.put<int64_t>(1, (out.sample() * 3 + 1) % kWords);
  }
};

template <class Net>
struct NetRecipe : SupervisedRecipe {
  NetRecipe(const RecipeSettings& s, std::shared_ptr<Net> n, InitRules rules = {})
      : SupervisedRecipe(s), net(std::move(n)), initial(std::move(rules)) {}
  std::shared_ptr<torch::nn::Module> make_model() override { return net; }
  std::unique_ptr<Dataset> make_data() override { return std::make_unique<Words>(); }
  InitRules initial_weights() const override { return initial; }
  at::Tensor forward(const Batch& batch, ShardContext&) override { return net->forward(batch.tensors[0]); }
  std::shared_ptr<Net> net;
  InitRules initial;
};

struct SmallSettings : RecipeSettings {
  explicit SmallSettings(int64_t shards_ = 1) {
    set_determinism();
    shards = shards_;
    batch_size = kSentences;  // the whole set: its order does not matter
    seed = 3;
    loader.threads = 1;
    optimizer.kind = "adam";
    optimizer.learning_rate = 0.02;
    clip_norm = 0;
    optimizer.weight_decay = 0;
    nan.rollback_every = 2;
  }
};

template <class Net>
std::unique_ptr<TrainLoop> loop_of(const RecipeSettings& s, std::shared_ptr<Net> net, InitRules rules = {}) {
  return std::make_unique<TrainLoop>(s, std::make_unique<NetRecipe<Net>>(s, net, rules),
                                     ShardPlan::balance(static_cast<int>(s.shards), std::vector<double>{1}));
}

at::Tensor all_words() { return at::arange(kSentences, at::kLong) % kWords; }
at::Tensor all_next() { return (at::arange(kSentences, at::kLong) * 3 + 1) % kWords; }

Snapshot through_a_file(TrainLoop& loop, const std::filesystem::path& dir, LoadedCheckpoint& loaded) {
  Snapshot snapshot = take_snapshot(loop);
  snapshot.contents.run_id = "test";
  CheckpointStore store(FileSystem::real(), dir, 2);
  loaded = store.load(store.save(snapshot.contents));
  return snapshot;
}

bool same_tensors(const Snapshot& a, const Snapshot& b) {  // all but the scalars
  return a.block.size() == b.block.size() && std::equal(a.block.begin() + SnapshotLayout::kScalarBytes, a.block.end(),
                                                        b.block.begin() + SnapshotLayout::kScalarBytes);
}

TEST(TiedWeights, AreOneParameterWithOneGradientTheSumOfItsUses) {
  JobState state(1, 5);
  const auto net = std::make_shared<TiedNet>();
  state.add_model(net);
  state.seal(0, 2);
  ASSERT_EQ(state.parameter_entries().size(), 3u);
  EXPECT_EQ(state.parameter_entries()[0].name, "wte.weight");
  EXPECT_EQ(state.parameter_entries()[0].aliases, std::vector<std::string>{"head.weight"});
  EXPECT_TRUE(net->head->weight.is_same(net->wte->weight));

  TiedNet untied(/*tied=*/false);
  {
    at::NoGradGuard no_grad;
    untied.wte->weight.copy_(net->wte->weight);
    untied.head->weight.copy_(net->wte->weight);
    untied.mid->weight.copy_(net->mid->weight);
    untied.mid->bias.copy_(net->mid->bias);
  }
  namespace F = torch::nn::functional;
  F::cross_entropy(net->forward(all_words()), all_next()).backward();
  F::cross_entropy(untied.forward(all_words()), all_next()).backward();
  const at::Tensor sum = untied.wte->weight.grad() + untied.head->weight.grad();
  EXPECT_TRUE(at::allclose(net->wte->weight.grad(), sum, 0, 1e-7));
  const at::Tensor in_buffer = torch::from_blob(state.contribution().data(), {kWords, kWidth});
  EXPECT_TRUE(at::equal(in_buffer, net->wte->weight.grad())) << "it lies in the contribution, once";
}

TEST(TiedWeights, TrainAsInPlainLibtorch) {
  const SmallSettings settings;
  const auto net = std::make_shared<TiedNet>();
  const auto loop = loop_of(settings, net);
  TiedNet plain;
  {
    at::NoGradGuard no_grad;
    plain.wte->weight.copy_(net->wte->weight);
    plain.mid->weight.copy_(net->mid->weight);
    plain.mid->bias.copy_(net->mid->bias);
  }
  torch::optim::Adam adam({plain.wte->weight, plain.mid->weight, plain.mid->bias},
                          torch::optim::AdamOptions(0.02)
                              .betas({settings.optimizer.beta1, settings.optimizer.beta2})
                              .eps(settings.optimizer.epsilon));
  for (int step = 0; step < 6; ++step) {
    adam.zero_grad();
    torch::nn::functional::cross_entropy(plain.forward(all_words()), all_next()).backward();
    for (auto& group : adam.param_groups()) group.options().set_lr(loop->step().learning_rate);
    adam.step();
    EXPECT_TRUE(at::allclose(net->wte->weight, plain.wte->weight, 0, 1e-6)) << "step " << step;
    EXPECT_TRUE(at::allclose(net->mid->weight, plain.mid->weight, 0, 1e-6)) << "step " << step;
  }
}

TEST(TiedWeights, AreStoredOnceAndFoundUnderEitherName) {
  const SmallSettings settings(2);
  const auto loop = loop_of(settings, std::make_shared<TiedNet>());
  for (int step = 0; step < 3; ++step) loop->step();
  TempDir dir;
  LoadedCheckpoint loaded;
  const Snapshot snapshot = through_a_file(*loop, dir.path(), loaded);
  EXPECT_EQ(loaded.model.tensors().size(), 3u);
  EXPECT_FALSE(loaded.model.find("head.weight"));
  EXPECT_EQ(loaded.model.metadata().at("head.weight"), "wte.weight");

  const auto again = loop_of(settings, std::make_shared<TiedNet>());
  restore_snapshot(*again, loaded);
  EXPECT_EQ(digest_of(*again), digest_of(*loop));
  again->step();
  loop->step();
  EXPECT_EQ(digest_of(*again), digest_of(*loop));

  // A file that kept the other name, as other programs may.
  CheckpointContents other = snapshot.contents;
  for (TensorView& t : other.model)
    if (t.name == "wte.weight") t.name = "head.weight";
  other.aliases = {{"wte.weight", "head.weight"}};
  TempDir elsewhere;
  CheckpointStore store(FileSystem::real(), elsewhere.path(), 2);
  const auto third = loop_of(settings, std::make_shared<TiedNet>());
  restore_snapshot(*third, store.load(store.save(other)));
  third->step();
  EXPECT_EQ(digest_of(*third), digest_of(*loop));
}

TEST(TiedWeights, ALayoutFromBeforeThemReadsAsItDid) {
  const SmallSettings settings(2);
  const auto loop = loop_of(settings, std::make_shared<TiedNet>(/*tied=*/false));
  nlohmann::json json = snapshot_layout(*loop).to_json();
  for (const nlohmann::json& item : json) EXPECT_EQ(item.size(), 5u);
  EXPECT_EQ(SnapshotLayout::from_json(json), snapshot_layout(*loop));
  const auto tied = loop_of(settings, std::make_shared<TiedNet>());
  const SnapshotLayout layout = SnapshotLayout::from_json(snapshot_layout(*tied).to_json());
  EXPECT_EQ(layout.tensors()[0].aliases, std::vector<std::string>{"head.weight"});
}

TEST(TiedWeights, AnAssignedWeightAndTwoTensorsInOneMemoryAreRefused) {
  const auto what = [](std::shared_ptr<torch::nn::Module> model) -> std::string {
    JobState state(1, 5);
    try {
      state.add_model(std::move(model));
      state.seal(0, 0);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  const auto assigned = std::make_shared<TiedNet>(/*tied=*/false);
  assigned->head->weight = assigned->wte->weight;
  EXPECT_EQ(what(assigned), "the model's layer 'head' uses another weight than it has registered");
  const auto shared = std::make_shared<TiedNet>(/*tied=*/false);
  shared->head->weight.set_data(shared->wte->weight.detach());
  EXPECT_EQ(what(shared), "parameters 'wte.weight' and 'head.weight' share memory, but are two tensors");
}

TEST(ChannelsLast, WeightsGradientsAndOptimizerLieSoInMemoryAndRowByRowInFiles) {
  const SmallSettings settings(2);
  const auto plain_net = std::make_shared<ConvNet>(false), last_net = std::make_shared<ConvNet>(true);
  const auto plain = loop_of(settings, plain_net), last = loop_of(settings, last_net);
  EXPECT_EQ(digest_of(*plain), digest_of(*last)) << "the same initial weights";
  for (const at::Tensor& t : {last_net->conv->weight, last_net->conv->weight.grad()})
    EXPECT_TRUE(t.is_contiguous(at::MemoryFormat::ChannelsLast) && !t.is_contiguous());
  for (const at::Tensor& t : {last_net->deep->weight, last_net->deep->weight.grad()})
    EXPECT_TRUE(t.is_contiguous(at::MemoryFormat::ChannelsLast3d) && !t.is_contiguous());
  for (int step = 0; step < 5; ++step) {
    plain->step();
    last->step();
  }
  // Equal but for the order in which the convolutions add.
  EXPECT_TRUE(at::allclose(plain_net->conv->weight, last_net->conv->weight, 1e-3, 1e-5));
  EXPECT_TRUE(at::allclose(plain_net->deep->weight, last_net->deep->weight, 1e-3, 1e-5));
  const Snapshot one = take_snapshot(*plain), other = take_snapshot(*last);
  ASSERT_EQ(one.contents.state.size(), other.contents.state.size());
  for (const auto part : {&CheckpointContents::model, &CheckpointContents::state})
    for (size_t i = 0; i < (one.contents.*part).size(); ++i) {
      const TensorView &a = (one.contents.*part)[i], &b = (other.contents.*part)[i];
      ASSERT_EQ(a.name, b.name);
      ASSERT_EQ(a.shape, b.shape);
      const auto numbers = [](const TensorView& t) {
        return torch::from_blob(const_cast<std::byte*>(t.bytes.data()), {static_cast<int64_t>(t.bytes.size() / 4)});
      };
      EXPECT_TRUE(at::allclose(numbers(a), numbers(b), 1e-3, 1e-5)) << a.name;
    }
}

TEST(ChannelsLast, ARunGoesOnFromACheckpointOfTheOtherLayoutToTheBitOfItsOwn) {
  const SmallSettings settings(2);
  const auto make = [&](bool channels_last) { return loop_of(settings, std::make_shared<ConvNet>(channels_last)); };
  for (const bool first : {false, true}) {
    const auto whole = make(first);
    for (int step = 0; step < 3; ++step) whole->step();
    TempDir dir;
    LoadedCheckpoint loaded;
    through_a_file(*whole, dir.path(), loaded);
    const auto same = make(first), other = make(!first);
    restore_snapshot(*same, loaded);
    restore_snapshot(*other, loaded);
    EXPECT_EQ(digest_of(*same), digest_of(*whole));
    EXPECT_EQ(digest_of(*other), digest_of(*whole)) << "what a file says does not depend on the memory";
    EXPECT_TRUE(same_tensors(take_snapshot(*other), take_snapshot(*whole))) << "nor do optimizer and kept state";
    EXPECT_EQ(replicated_hash(*same), replicated_hash(*whole));
    for (int step = 0; step < 3; ++step) {
      whole->step();
      same->step();
    }
    EXPECT_EQ(digest_of(*same), digest_of(*whole));
  }
}

TEST(ChannelsLast, PartsOfASnapshotThatSeveralWorkersWriteMakeUpTheWhole) {
  const SmallSettings settings(2);
  const auto loop = loop_of(settings, std::make_shared<ConvNet>(true));
  loop->step();
  const SnapshotLayout layout = snapshot_layout(*loop);
  std::vector<std::byte> whole(layout.bytes()), parts(layout.bytes());
  write_part(*loop, layout, whole, 0, 1);
  for (int me = 0; me < 3; ++me) write_part(*loop, layout, parts, me, 3);
  EXPECT_EQ(whole, parts);
}

TEST(InitialWeights, ARecipesRulesReachItsModelAndNoneChangeNothing) {
  const SmallSettings settings;
  const auto before = std::make_shared<TiedNet>(), ruled = std::make_shared<TiedNet>();
  const auto loop = loop_of(settings, before);
  JobState by_number(1, 3);
  const auto plain = std::make_shared<TiedNet>();
  by_number.add_model(plain);
  EXPECT_TRUE(at::equal(before->mid->weight, plain->mid->weight));
  const auto with_rules = loop_of(settings, ruled, InitRules().name("mid.*", init::constant(0.25)));
  EXPECT_TRUE(at::equal(ruled->mid->weight, at::full({kWidth, kWidth}, 0.25)));
}

}  // namespace
}  // namespace tandem
