// tests/gpu/mixed_recipe.h -- a recipe that has something of everything: convolutions with batch norm, pools, an LSTM,
// a perceptron with dropout.
#pragma once

#include <memory>

#include "tandem.h"

namespace tandem {

struct MixedSettings : RecipeSettings {
  int64_t width = 64;
  bool peek = false;    // forward() reads a tensor on the host: it can't be captured
  bool ragged = false;  // batches of changing length
  MixedSettings() {
    shards = 8;
    batch_size = 256;
    steps = 50;
    clip_norm = 1;
    optimizer.kind = "adamw";
    optimizer.weight_decay = 0.01;
  }
  void describe(Describer& d) override {
    RecipeSettings::describe(d);
    d.key("peek", peek, "forward() looks at a number on the host");
    d.key("ragged", ragged, "frames of changing size");
    d.key("width", width, Range::between(8, 1024), "channels of the last convolution, and of the LSTM");
  }
};

std::unique_ptr<Recipe> make_mixed(const MixedSettings& settings);

}  // namespace tandem
