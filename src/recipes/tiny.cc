// recipes/tiny.cc -- a classifier with dropout and batch norm on generated data: the smallest whole recipe.
//
// Classes are Gaussian blobs; a sample, before augmentation, is a function of (data_seed, its number).
#include <torch/torch.h>

#include "engine/supervised.h"
#include "kernels/cpu/random_fill.h"
#include "nn/batch_norm.h"
#include "nn/dropout.h"
#include "nn/linear.h"
#include "recipes/makers.h"
#include "recipes/tiny_settings.h"

namespace tandem {
namespace {

enum Site : uint32_t { kFirstDropout, kSecondDropout };
enum DataSite : uint32_t { kCentres, kLabels, kNoise };

class TinyData : public Dataset {
 public:
  // Samples [first, first + count) of the endless series.
  TinyData(const TinySettings& s, int64_t first, int64_t count, double augment) : augment_(augment) {
    const uint64_t seed = static_cast<uint64_t>(s.data_seed);
    at::Tensor centres = at::empty({s.classes, s.features});
    fill_normal(centres.data_ptr<float>(), centres.numel(), {.seed = seed, .site = kCentres});
    labels_ = at::empty({count}, at::kLong);
    for (int64_t i = 0; i < count; ++i)
      labels_.data_ptr<int64_t>()[i] =
          random_below({.seed = seed, .site = kLabels}, first + i, static_cast<uint32_t>(s.classes));
    features_ = at::empty({count, s.features});
    fill_normal(features_.data_ptr<float>(), features_.numel(), {.seed = seed, .site = kNoise}, first * s.features, 0,
                static_cast<float>(s.noise));
    features_ += centres.index_select(0, labels_);
  }

  int64_t size() const override { return labels_.size(0); }

  std::vector<at::Tensor> load(std::span<const int64_t> samples, const RandomKey& random) const override {
    const at::Tensor rows =
        torch::from_blob(const_cast<int64_t*>(samples.data()), {static_cast<int64_t>(samples.size())}, at::kLong);
    at::Tensor x = features_.index_select(0, rows);
    if (augment_ == 0) return {x, labels_.index_select(0, rows)};
    at::Tensor noise = at::empty_like(x);
    fill_normal(noise.data_ptr<float>(), noise.numel(), random, 0, 0, static_cast<float>(augment_));
    return {x.add_(noise), labels_.index_select(0, rows)};
  }

 private:
  double augment_;
  at::Tensor features_, labels_;
};

struct TinyNet : torch::nn::Module {
  explicit TinyNet(const TinySettings& s)
      : fc1(register_module("fc1", Linear(s.features, s.hidden))),
        bn1(register_module("bn1", BatchNorm(s.hidden))),
        fc2(register_module("fc2", Linear(s.hidden, s.hidden))),
        bn2(register_module("bn2", BatchNorm(s.hidden))),
        out(register_module("out", Linear(s.hidden, s.classes))),
        drop(s.dropout) {}

  at::Tensor forward(at::Tensor x, const ShardContext& context) {  // [B, features] -> [B, classes]
    x = dropout(at::relu(bn1(fc1(x))), drop, context.random(kFirstDropout));
    x = dropout(at::relu(bn2(fc2(x))), drop, context.random(kSecondDropout));
    return out(x);
  }

  Linear fc1;
  BatchNorm bn1;
  Linear fc2;
  BatchNorm bn2;
  Linear out;
  double drop;
};

// The loss is SupervisedRecipe's: cross-entropy of what forward() returns with the last tensor of the batch.
class Tiny : public SupervisedRecipe {
 public:
  explicit Tiny(const TinySettings& s) : SupervisedRecipe(s), settings_(s) {}
  std::shared_ptr<torch::nn::Module> make_model() override { return net_ = std::make_shared<TinyNet>(settings_); }
  std::unique_ptr<Dataset> make_data() override {
    return std::make_unique<TinyData>(settings_, 0, settings_.samples, settings_.augment);
  }
  std::unique_ptr<Dataset> make_validation_data() override {
    if (settings_.validation_samples == 0) return nullptr;
    return std::make_unique<TinyData>(settings_, settings_.samples, settings_.validation_samples, 0);
  }
  at::Tensor forward(const Batch& batch, ShardContext& context) override {
    return net_->forward(batch.tensors[0], context);
  }

 private:
  const TinySettings& settings_;
  std::shared_ptr<TinyNet> net_;
};

}  // namespace

std::unique_ptr<Recipe> make_tiny(const TinySettings& settings) { return std::make_unique<Tiny>(settings); }

}  // namespace tandem
