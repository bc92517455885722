// recipes/tiny_settings.h -- settings of `tiny`: a small classifier on generated data, to try things with.
#pragma once

#include "config/run_settings.h"

namespace tandem {

struct TinySettings : RecipeSettings {
  int64_t samples = 5100;  // not a multiple of the batch, so that every epoch ends in a padded one
  int64_t validation_samples = 1000;
  int64_t features = 32;
  int64_t classes = 10;
  int64_t hidden = 64;
  double dropout = 0.1;
  double noise = 0.9;     // of a class around its centre: at 0.9 about 1 sample in 30 lies nearer to another class
  double augment = 0.1;   // noise added anew each time a sample is loaded
  int64_t data_seed = 1;  // another one is another data set

  TinySettings() {
    shards = 24;       // 1, 2, 3, 4, 6 or 8 workers share it evenly
    batch_size = 192;  // 8 rows a shard
    steps = 3000;      // about half a minute on one core
    optimizer.learning_rate = 3e-3;
    schedule.warmup_steps = 20;
    validation.every = "5 epochs";
  }

  std::vector<std::string> units() const override { return {"epochs"}; }

  void describe(Describer& d) override {
    RecipeSettings::describe(d);
    d.key("samples", samples, Range::between(1, 10'000'000), "size of the generated data set");
    d.key("validation_samples", validation_samples, Range::between(0, 10'000'000),
          "samples of the same kind that training never sees; 0: none", Role::kRunning);
    d.key("features", features, Range::between(1, 65536), "features per sample");
    d.key("classes", classes, Range::between(2, 65536), "number of classes");
    d.key("hidden", hidden, Range::between(1, 65536), "width of the two hidden layers");
    d.key("dropout", dropout, Range::from_up_to_below(0, 1), "dropout probability");
    d.key("noise", noise, Range::at_least(0), "standard deviation of a class around its centre");
    d.key("augment", augment, Range::at_least(0),
          "augmentation: standard deviation of the noise added each time a sample is loaded");
    d.key("data_seed", data_seed, Range::at_least(0), "seed of the generated data");
  }
};

}  // namespace tandem
