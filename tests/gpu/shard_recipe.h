// tests/gpu/shard_recipe.h -- the models of shard_models.h as a recipe: `model` is gpt, bert or resnet.
#pragma once

#include <memory>
#include <string>

#include "config/run_settings.h"
#include "shard_models.h"

namespace tandem {

struct ShardSettings : RecipeSettings {
  std::string model = "gpt", wrong = "nothing";
  bool plain = false, mixes_rows = false, resident = false;
  // 0: as the model has it by itself.
  int64_t layers = 0, width = 0, tokens = 0, vocabulary = 0, side = 0, classes = 0, head_chunk = 0;
  int64_t mixes_from = 0;  // the model's outputs are mixed from this step on: a fault that must end the run
  int64_t samples = 1000;  // no multiple of the batch: the last one of an epoch is padded
  double dropout = 0.1;
  ShardSettings() {
    shards = 8;
    batch_size = 32;
    steps = 10;
    optimizer.kind = "adamw";
    optimizer.weight_decay = 0.01;
    clip_norm = 1;
  }
  void describe(Describer& d) override;
  void check() const override;
};

TransformerOptions transformer_options(const ShardSettings& settings);
ResNetOptions resnet_options(const ShardSettings& settings);
std::unique_ptr<Recipe> make_shard_recipe(const ShardSettings& settings);

}  // namespace tandem
