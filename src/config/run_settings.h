// config/run_settings.h -- the keys every recipe has, with their defaults.
//
// A recipe's own struct derives from RecipeSettings, sets other defaults for these in its constructor, and in its
// describe() calls RecipeSettings::describe() first and then names its own keys.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/settings.h"

namespace tandem {

struct OptimizerSettings {
  std::string kind = "adam";  // adam, adamw, sgd
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double momentum = 0.0;
  bool nesterov = false;
  double weight_decay = 0.0;
  bool decay_vectors = false;  // biases and norm weights are decayed too
};

struct ScheduleSettings {
  std::string kind = "constant";  // constant, cosine, cosine_restarts
  int64_t warmup_steps = 0;
  double warmup_epochs = 0;   // in place of warmup_steps; freeze_schedule() of engine/last_step.h turns it into steps
  int64_t total_steps = 0;    // 0: the run's steps; freeze() writes the number into the resolved recipe
  int64_t restart_steps = 0;  // length of the first cycle of cosine_restarts
  double restart_epochs = 0;  // the same in epochs
  double restart_factor = 1.0;
  double min_factor = 0.0;             // the rate never falls below this share of itself
  std::string batch_scaling = "none";  // none, linear, sqrt
  int64_t base_batch = 0;              // the batch that learning_rate was found with; 0: no scaling
};

struct CheckpointSettings {
  std::string every =
      "auto";  // "auto", "60s", "10m", "500 steps", "never"; parse with parse_interval() of config/units.h
  int64_t keep = 3;
};

// How often a recipe's validation sets are gone through, and what follows from them (engine/validation.h).
struct ValidationSettings {
  std::string every = "auto";  // "auto" (an epoch), "500 steps", "2 epochs", "never"; parse_validation_interval()
  std::string best;            // the metric that decides: "accuracy", "test/loss"; "": the recipe's first
  int64_t patience = 0;        // validations without a gain before the run ends; 0: it goes on
  double min_delta = 0;        // a smaller gain is none
};

struct LoaderSettings {
  int64_t threads = -1;  // what suits the device (base/cores.h)
  int64_t prefetch = -1;
};

struct AmpSettings {
  double initial_scale = 65536.0;
  int64_t growth_steps = 2000;
};

// What watches the GPUs of a run (src/guard/).
struct GuardSettings {
  std::string mode = "on";  // on, watch (names what is wrong, changes nothing), off
  double target_c = 80;     // cool enough: what was taken back is given again below it
  double warn_c = 85;
  double act_c = 90;
  std::string power;  // how far a hot GPU's power limit may be lowered: "80%", "180W"; "" is not at all
  bool fan = true;    // fans may be raised
};

struct NanSettings {
  int64_t patience = 3;          // bad steps in a row before a roll-back
  int64_t rollback_every = 100;  // steps between the states kept to roll back to
  int64_t max_rollbacks = 3;     // then stop with exit code 7
};

struct RecipeSettings : Settings {
  int64_t seed = 1;

  // Stop rule: the first one reached ends the run. 0 or "" is unset.
  int64_t steps = 0;
  int64_t epochs = 0;
  int64_t episodes = 0;
  int64_t iterations = 0;
  std::string max_time;  // "90s", "10m", "2h"; parse with parse_duration() of config/units.h

  int64_t shards = 1;
  bool shards_from_devices = false;  // `shards = "devices"`: shards is 0 until freeze() sets the number of devices
  int64_t batch_size = 1;            // of one update of the whole job; per device while shards_from_devices
  int64_t accumulation = 1;          // gradient accumulation: micro-batches of each shard in one update
  std::string precision = "fp32";    // fp32, tf32 (GPUs only), bf16, fp16
  std::string exact = "aim";         // aim, require
  std::string devices;               // "" is auto; parse with parse_devices() of config/devices.h
  double memory_fraction = 0.9;      // of a GPU's memory: the rest is for the driver, the libraries and the desktop
  int64_t shards_per_pass = 0;       // 0: as many as memory allows; no bit depends on it
  double clip_norm = 0.0;            // 0 is off
  bool sync_bn = false;
  double bn_momentum = 0.1;

  OptimizerSettings optimizer;
  ScheduleSettings schedule;
  CheckpointSettings checkpoint;
  ValidationSettings validation;
  LoaderSettings loader;
  AmpSettings amp;
  NanSettings nan;
  GuardSettings guard;
  double price_kwh = 0;  // of electricity; 0: not known, a run tells its energy alone
  std::string currency = "USD";

  void describe(Describer& describer) override;

  // The stop rules this recipe can count in, beside steps and time; asked before a worker starts.
  virtual std::vector<std::string> units() const { return {"epochs", "episodes", "iterations"}; }

  // Rules between keys. The CLI calls it after freeze(); a recipe adds its own and calls this one. Throws ConfigError.
  virtual void check() const;

  // Samples one shard runs at once: batch_size / (shards * accumulation). Meaningful once check() has passed.
  int64_t micro_batch_size() const { return batch_size / (shards * accumulation); }
};

}  // namespace tandem
