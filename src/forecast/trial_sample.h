// forecast/trial_sample.h -- for tests: trials of a machine that keeps to the model exactly.
#pragma once

#include "forecast/calibration.h"

namespace tandem {

struct SampleMachine {
  double per_shard = 1e-4, per_sample = 2e-5;  // seconds of compute
  double fixed = 3e-4, combine2 = 2e-4;
  int64_t shards = 24;
  int cores = 2;

  Trial trial(int64_t batch, std::vector<TrialDevice> devices, std::vector<int> held) const {
    Trial trial;
    trial.devices = std::move(devices);
    trial.batch = batch;
    trial.shards = shards;
    trial.steps = 1000;
    const double one = per_shard + per_sample * static_cast<double>(batch) / static_cast<double>(shards);
    for (size_t i = 0; i < held.size(); ++i)
      trial.compute_seconds = std::max(trial.compute_seconds, held[i] * one / trial.devices[i].speed);
    trial.step_seconds = trial.compute_seconds + fixed + (held.size() > 1 ? combine2 : 0);
    trial.samples = static_cast<double>(batch);
    trial.start_seconds = held.size() > 1 ? 1.5 : 1;
    trial.end_seconds = .2;
    trial.shape.weights_bytes = 1e6;
    trial.shape.optimizer_bytes = 2e6;
    trial.shape.combine_floats = 25e4;
    trial.shape.shard_bytes = 1e5;
    trial.memory_start = 200e6;
    trial.memory_bytes =
        200e6 + 24e5 + 2 * (3e6 / static_cast<double>(held.size()) + 24e5) + 1e4 * static_cast<double>(batch);
    return trial;
  }
  Calibration calibration() const {
    Calibration c{.recipe = "tiny", .machine = "m", .made = "now", .cores = cores, .load = 0, .trials = {}};
    const int all = static_cast<int>(shards), half = all / 2;
    c.trials = {trial(192, {{"cpu"}}, {all}), trial(384, {{"cpu"}}, {all}),
                trial(192, {{"cpu"}, {"cpu"}}, {half, half})};
    return c;
  }
};

}  // namespace tandem
