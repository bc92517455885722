// engine/batch_source.h -- the batches of this worker's shards, made ahead by threads: of training and of validation.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/run_settings.h"
#include "engine/batch_maker.h"
#include "engine/epoch_sampler.h"
#include "engine/gpu_device.h"
#include "engine/loader.h"
#include "engine/phase_run.h"
#include "engine/validation.h"

namespace tandem {

class BatchSource {
 public:
  // The recipe was built. `gpu`: null on a CPU; else batches are made while it computes.
  BatchSource(const RecipeSettings& settings, const Recipe& recipe, const Validation& validation, uint64_t seed,
              GpuDevice* gpu);
  // The shards in the order in which they are asked for; `lockstep`: all run micro-batch 0, then all run 1.
  void visit(std::vector<int> shards, bool lockstep);

  const EpochSampler* sampler() const { return sampler_ ? &*sampler_ : nullptr; }
  bool is_full(const Phase& phase, int64_t step) const;  // no row of this step is padding
  // Before a phase is run: resident data is loaded, once. That can take minutes; alive() is called meanwhile.
  void begin(const PhaseRun& run, const std::function<void()>& alive);
  // One micro-batch. One that is kept may be had again until forget_before() a later step.
  Batch get(const PhaseRun& run, int shard, int64_t micro_batch, bool keep);
  void forget_before(int64_t step);
  void end_validation();

  double waited_seconds() const { return waited_seconds_; }     // for batches, in all
  void forgive(double seconds) { waited_seconds_ -= seconds; }  // nobody was kept waiting meanwhile
  const MakeTimes& making() const { return making_; }
  std::string take_note();  // what the user should know, once: memory that can't be pinned, data that can't stay

 private:
  std::unique_ptr<BatchMaker> maker_of(const Dataset& data) const;
  Batch make(const LoadKey& key) const;
  LoadKey next(const LoadKey& key) const;
  std::unique_ptr<Loader> validation_loader(size_t set);

  const RecipeSettings& settings_;
  const Validation& validation_;
  uint64_t seed_;
  GpuDevice* gpu_;
  bool on_gpu_, lockstep_ = false;
  std::vector<int> shards_;
  std::optional<EpochSampler> sampler_;
  MakeTimes making_;  // these outlive the loaders' threads
  std::unique_ptr<BatchMaker> maker_;
  std::vector<std::unique_ptr<BatchMaker>> validation_makers_;
  std::unique_ptr<Loader> loader_, validation_loader_;
  size_t validation_set_ = 0;
  std::map<LoadKey, Batch> kept_;
  double waited_seconds_ = 0;
  std::string note_;
};

}  // namespace tandem
