#include "engine/batch_source.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/cores.h"
#include "engine/resident_data.h"
#include "engine/slow_worker.h"
#include "nn/sites.h"

namespace tandem {
namespace {

constexpr size_t kMostLoadedAhead = size_t{1} << 30;  // bytes, where nobody asked for a number of batches

}  // namespace

BatchSource::BatchSource(const RecipeSettings& settings, const Recipe& recipe, const Validation& validation,
                         uint64_t seed, GpuDevice* gpu)
    : settings_(settings), validation_(validation), seed_(seed), gpu_(gpu), on_gpu_(gpu != nullptr) {
  if (recipe.dataset()) {
    sampler_.emplace(recipe.dataset()->size(), settings.shards, settings.accumulation, settings.micro_batch_size(),
                     settings.seed);
    maker_ = maker_of(*recipe.dataset());
  }
  for (const ValidationSet& set : validation.sets()) validation_makers_.push_back(maker_of(*set.data));
}

std::unique_ptr<BatchMaker> BatchSource::maker_of(const Dataset& data) const {
  return std::make_unique<BatchMaker>(data, seed_, settings_.micro_batch_size(),
                                      gpu_ ? pinning_for(gpu_->device()) : HostPinning());
}

void BatchSource::begin(const PhaseRun& run, const std::function<void()>& alive) {
  BatchMaker* const maker = run.set              ? validation_makers_[run.set_index].get()
                            : run.phase->batches ? maker_.get()
                                                 : nullptr;
  if (!maker || !maker->wants_resident()) return;
  const LoaderSize size = loader_size(settings_.loader.threads, settings_.loader.prefetch, on_gpu_, worker_cores());
  if (const std::string why = maker->load_resident(size.threads, room_for_resident(gpu_), alive); !why.empty())
    note_ = why;
}

void BatchSource::visit(std::vector<int> shards, bool lockstep) {
  loader_.reset();  // its threads ask for the order of visits
  validation_loader_.reset();
  kept_.clear();
  shards_ = std::move(shards);
  lockstep_ = lockstep;
  if (!maker_) return;
  const LoaderSize size = loader_size(settings_.loader.threads, settings_.loader.prefetch, on_gpu_, worker_cores());
  loader_ = std::make_unique<Loader>([this](const LoadKey& key) { return making_.measured([&] { return make(key); }); },
                                     [this](const LoadKey& key) { return next(key); }, size.threads, size.prefetch,
                                     settings_.loader.prefetch < 0 ? kMostLoadedAhead : SIZE_MAX);
}

bool BatchSource::is_full(const Phase& phase, int64_t step) const { return !phase.batches || sampler_->is_full(step); }

Batch BatchSource::get(const PhaseRun& run, int shard, int64_t micro_batch, bool keep) {
  if (run.set) {
    if (!validation_loader_ || validation_set_ != run.set_index) {
      validation_loader_.reset();
      validation_loader_ = validation_loader(run.set_index);
    }
    return validation_loader_->get({run.pass, shard, 0});
  }
  const LoadKey key{run.step, shard, micro_batch};
  if (const auto found = kept_.find(key); found != kept_.end()) return found->second;
  const double begin = monotonic_seconds();
  Batch batch = loader_->get(key);
  waited_seconds_ += monotonic_seconds() - begin;
  if (keep) kept_.emplace(key, batch);
  return batch;
}

void BatchSource::forget_before(int64_t step) {
  std::erase_if(kept_, [&](const auto& item) { return item.first.step < step; });
}

std::string BatchSource::take_note() {
  if (!note_.empty()) return std::exchange(note_, "");
  return maker_ ? maker_->take_note() : "";
}

void BatchSource::end_validation() { validation_loader_.reset(); }

// As training's batches, made ahead by threads; `step` of a key is the pass.
std::unique_ptr<Loader> BatchSource::validation_loader(size_t set) {
  validation_set_ = set;
  const LoaderSize size = loader_size(settings_.loader.threads, settings_.loader.prefetch, on_gpu_, worker_cores());
  const auto make = [this, set](const LoadKey& key) {
    if (key.step >= validation_.passes(set)) return Batch();
    return validation_makers_[set]->make(validation_.slice(set, key.step, static_cast<int>(key.shard)),
                                         {.seed = seed_,
                                          .step = static_cast<uint64_t>(key.step),
                                          .shard = static_cast<uint32_t>(key.shard),
                                          .site = kValidation});
  };
  const auto next = [this](const LoadKey& key) {
    const auto here = std::ranges::find(shards_, static_cast<int>(key.shard));
    return here + 1 == shards_.end() ? LoadKey{key.step + 1, shards_.front(), 0} : LoadKey{key.step, *(here + 1), 0};
  };
  return std::make_unique<Loader>(make, next, size.threads, size.prefetch, kMostLoadedAhead);
}

Batch BatchSource::make(const LoadKey& key) const {
  delay_loader_for_tests();
  const RandomKey random{.seed = seed_,
                         .step = static_cast<uint64_t>(key.step * settings_.accumulation + key.micro_batch),
                         .shard = static_cast<uint32_t>(key.shard),
                         .site = kAugmentation};
  return maker_->make(sampler_->slice(key.step, key.shard, key.micro_batch), random);
}

LoadKey BatchSource::next(const LoadKey& key) const {
  const auto here = std::ranges::find(shards_, key.shard);
  const bool last_shard = here + 1 == shards_.end(), last_micro_batch = key.micro_batch + 1 == settings_.accumulation;
  if (lockstep_) {
    if (!last_shard) return {key.step, *(here + 1), key.micro_batch};
    return last_micro_batch ? LoadKey{key.step + 1, shards_.front(), 0}
                            : LoadKey{key.step, shards_.front(), key.micro_batch + 1};
  }
  if (!last_micro_batch) return {key.step, key.shard, key.micro_batch + 1};
  return last_shard ? LoadKey{key.step + 1, shards_.front(), 0} : LoadKey{key.step, *(here + 1), 0};
}

}  // namespace tandem
