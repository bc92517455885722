#include "shard_recipe.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "base/errors.h"
#include "engine/supervised.h"
#include "shard_data.h"

namespace tandem {
namespace {

bool is_resnet(const ShardSettings& s) { return s.model.starts_with("resnet"); }

// Sample 31 is a token shorter than the others.
class ShortSample : public Dataset {
 public:
  explicit ShortSample(const TextOptions& options) : options_(options) {}
  int64_t size() const override { return options_.samples; }
  std::string name() const override { return "sentences of two lengths"; }
  std::vector<at::Tensor> load(std::span<const int64_t> samples, const RandomKey&) const override {
    const bool among = std::ranges::find(samples, 31) != samples.end();
    const at::Tensor text = at::zeros({std::ssize(samples), options_.tokens - among}, at::kLong);
    return {text, text};
  }

 private:
  TextOptions options_;
};

class ModelRecipe : public SupervisedRecipe {
 public:
  explicit ModelRecipe(const ShardSettings& s) : SupervisedRecipe(s), settings_(s) {}
  std::shared_ptr<torch::nn::Module> make_model() override {
    return net_ = is_resnet(settings_) ? make_resnet(resnet_options(settings_))
                                       : make_transformer(transformer_options(settings_));
  }
  InitRules initial_weights() const override { return net_->initial_weights(); }
  std::unique_ptr<Dataset> make_data() override {
    if (is_resnet(settings_))
      return make_pictures({.samples = settings_.samples,
                            .side = settings_.side ? settings_.side : 64,
                            .classes = resnet_options(settings_).classes,
                            .resident = settings_.resident});
    const TransformerOptions o = transformer_options(settings_);
    const TextOptions text{.samples = settings_.samples,
                           .tokens = o.tokens,
                           .vocabulary = o.vocabulary == gpt2_small().vocabulary ? 50257 : o.vocabulary,
                           .causal = o.causal,
                           .resident = settings_.resident};
    if (settings_.wrong == "sample") return std::make_unique<ShortSample>(text);
    return make_text(text);
  }
  at::Tensor forward(const Batch& batch, ShardContext& context) override {
    Batch given = batch;
    if (settings_.wrong == "mask") given.tensors[1] = given.tensors[1].slice(1, 1);
    const at::Tensor output = net_->forward(given, context);
    const bool mixes = settings_.mixes_from > 0 && context.step >= settings_.mixes_from;
    return mixes ? output - output.mean(0, true) : output;
  }
  at::Tensor row_losses(const at::Tensor& output, const Batch& batch) override {
    return net_->row_losses(output, batch);
  }

 private:
  const ShardSettings& settings_;
  std::shared_ptr<ShardModel> net_;
};

void take(int64_t& value, int64_t given) {
  if (given) value = given;
}

}  // namespace

void ShardSettings::describe(Describer& d) {
  RecipeSettings::describe(d);
  d.key("model", model, Choices{{"gpt", "bert", "resnet", "gpt2-small", "resnet50"}}, "which one");
  d.key("plain", plain, "torch's own layers, shard by shard");
  d.key("mixes_rows", mixes_rows, "the model subtracts the mean over all rows: a fault");
  d.key("mixes_from", mixes_from, Range::at_least(0), "the same of its outputs, from this step on; 0: never");
  d.key("wrong", wrong, Choices{{"nothing", "sample", "mask"}}, "what has another size than it should");
  d.key("resident", resident, "the data stays on the device", Role::kRunning);
  d.key("layers", layers, Range::at_least(0), "of a transformer, or blocks of each stage; 0: the model's own");
  d.key("width", width, Range::at_least(0), "of a transformer, or of the first stage; 0: the model's own");
  d.key("tokens", tokens, Range::at_least(0), "of a sequence; 0: the model's own");
  d.key("vocabulary", vocabulary, Range::at_least(0), "0: the model's own");
  d.key("side", side, Range::at_least(0), "of a picture, in pixels; below 32 the model has no pool; 0: 64");
  d.key("classes", classes, Range::at_least(0), "of pictures; 0: the model's own");
  d.key("head_chunk", head_chunk, Range::at_least(0), "tokens of a shard whose logits exist at a time; 0: all");
  d.key("samples", samples, Range::at_least(1), "in the data set");
  d.key("dropout", dropout, Range::from_up_to_below(0, 1), "of a transformer");
}

void ShardSettings::check() const {
  RecipeSettings::check();
  if (width % 4 != 0)
    throw ConfigError(fmt::format("width {} is no multiple of 4", width), "heads and stages divide it",
                      "choose a multiple");
}

TransformerOptions transformer_options(const ShardSettings& s) {
  TransformerOptions o;
  if (s.model == "gpt2-small") o = gpt2_small();
  o.causal = s.model != "bert";
  if (!o.causal) o.tokens = 128;
  o.plain = s.plain;
  o.mixes_rows = s.mixes_rows;
  take(o.layers, s.layers);
  take(o.tokens, s.tokens);
  take(o.vocabulary, s.vocabulary);
  if (s.width) {
    o.width = s.width;
    o.heads = s.width % 64 == 0 ? s.width / 64 : 4;
  }
  o.dropout = s.dropout;
  o.head_chunk = s.head_chunk;
  return o;
}

ResNetOptions resnet_options(const ShardSettings& s) {
  ResNetOptions o = s.model == "resnet50" ? resnet50() : resnet18();
  o.plain = s.plain;
  o.mixes_rows = s.mixes_rows;
  o.small_pictures = s.side > 0 && s.side < 32;
  take(o.width, s.width);
  take(o.classes, s.classes);
  if (s.layers) o.blocks = std::vector<int64_t>(o.small_pictures ? 3 : 4, s.layers);
  return o;
}

std::unique_ptr<Recipe> make_shard_recipe(const ShardSettings& settings) {
  return std::make_unique<ModelRecipe>(settings);
}

}  // namespace tandem
