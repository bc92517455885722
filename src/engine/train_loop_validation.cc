// engine/train_loop_validation.cc -- the part of TrainLoop that goes through validation sets (engine/validation.h).
#include <ATen/ATen.h>

#include <algorithm>

#include "base/clock.h"
#include "base/cores.h"
#include "engine/gpu_device.h"
#include "engine/train_loop.h"
#include "nn/sites.h"

namespace tandem {

void TrainLoop::validate(StepRecord& record, bool scheduled) {
  const double begin = monotonic_seconds();
  struct End {  // however it ends
    TrainLoop& loop;
    ~End() {
      loop.validating_ = nullptr;
      loop.validation_loader_.reset();
      loop.state_.end_evaluation();
    }
  } end{*this};
  state_.begin_evaluation();
  at::NoGradGuard no_grad;
  validation_->begin();
  for (size_t set = 0; set < validation_->sets().size(); ++set) {
    validating_ = &validation_->sets()[set];
    validation_loader_.reset();
    for (pass_ = 0; pass_ < validation_->passes(set); ++pass_)
      validation_->take(set, run_and_combine(validation_->phases()[set]).counts);
  }
  for (auto& metric : validation_->finish(steps_done_, scheduled)) record.metrics.push_back(std::move(metric));
  record.phase_seconds.emplace_back("validate", monotonic_seconds() - begin);
}

void TrainLoop::validate_if_due(StepRecord& record, bool last_step) {
  if (validation_->every() == 0 || !(validation_->due(steps_done_) || last_step)) return;
  validate(record, validation_->due(steps_done_));
}

// As training's batches, made ahead by threads; `step` of a key is the pass.
Batch TrainLoop::load_validation(int shard) {
  const size_t set = static_cast<size_t>(validating_ - validation_->sets().data());
  if (!validation_loader_) {
    const LoaderSize size =
        loader_size(settings_.loader.threads, settings_.loader.prefetch, gpu() != nullptr, worker_cores());
    const auto make = [this, set](const LoadKey& key) {
      if (key.step >= validation_->passes(set)) return Batch();
      return validation_makers_[set]->make(validation_->slice(set, key.step, static_cast<int>(key.shard)),
                                           {.seed = state_.seed(),
                                            .step = static_cast<uint64_t>(key.step),
                                            .shard = static_cast<uint32_t>(key.shard),
                                            .site = kValidation});
    };
    const auto next = [this](const LoadKey& key) {
      const auto here = std::ranges::find(visit_order_, static_cast<int>(key.shard));
      return here + 1 == visit_order_.end() ? LoadKey{key.step + 1, visit_order_.front(), 0}
                                            : LoadKey{key.step, *(here + 1), 0};
    };
    validation_loader_ = std::make_unique<Loader>(make, next, size.threads, size.prefetch, kMostLoadedAhead);
  }
  return validation_loader_->get({pass_, shard, 0});
}

size_t TrainLoop::index_of(const Phase& phase) const {
  if (!validating_) return static_cast<size_t>(&phase - phases_.data());
  return phases_.size() + static_cast<size_t>(&phase - validation_->phases().data());
}

}  // namespace tandem
