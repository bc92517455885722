// engine/update.h -- from a combined gradient to new weights: unscale, NaN rule, clip, schedule, optimizer.
//
// Every decision is made from combined numbers, so all workers decide alike. Loss scales are powers of two: scaling and
// unscaling change no bit of a finite gradient.
// The NaN rule: an update with NaN or Inf in a shard's gradient is skipped and named. `nan.patience` of them in a row
// roll weights and optimizer back to the last kept state (every `nan.rollback_every` steps) at half the learning rate;
// after `nan.max_rollbacks` the run stops with exit code 7. Steps are not repeated: a roll-back goes on at the next
// step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "config/run_settings.h"
#include "engine/job_state.h"
#include "engine/kept_state.h"
#include "kernels/update_decision.h"

namespace tandem {

// State vectors that an optimizer needs, each as long as the parameters: 2 for adam and adamw, 1 for sgd with momentum,
// else 0.
int optimizer_states(const OptimizerSettings& optimizer);

struct UpdateResult {
  bool skipped = false, rolled_back = false;
  double learning_rate = 0, grad_norm = 0, loss_scale = 1;
  std::string note;  // for the user, if something happened
};

class Update {
 public:
  // `most_kept_on_device`: bytes; a larger state to roll back to is kept in host memory.
  Update(const RecipeSettings& settings, JobState& state, int64_t global_batch,
         int64_t most_kept_on_device = KeptState::most_on_device());

  double loss_scale() const { return loss_scale_; }
  // At the start of a step: keeps a copy to roll back to, where one is due.
  void begin_step(int64_t step);
  // `total` is a combined contribution; `flag` the combined nan_flag. Throws Error(kGuardStopped) at the rule's end.
  UpdateResult apply(std::span<const float> total, int64_t flag);

  // The same in three parts. The middle one only queues work: it may be captured once and replayed at every step.
  UpdateParams params(int64_t flag) const;
  // `params` and `decision` lie on the device; `bad`: what Device::find_nonfinite() found in the shards of the total.
  void queue(std::span<const float> total, const UpdateParams* params, UpdateDecision* decision,
             std::span<const int64_t> bad, const TargetUpdate& target = {});
  // What became of it, once the decision is on the host.
  UpdateResult settle(std::span<const float> total, int64_t flag, const UpdateDecision& decision);

  // Everything that resume needs beside the tensors.
  nlohmann::json save() const;
  void load(const nlohmann::json& saved);
  std::vector<NamedTensor> kept_state();  // the state to roll back to, if one is kept; it may be written to
  // Hashes of its tensors, in that order, where they are known from when it was kept; else empty. A bit that has
  // flipped in host memory since does not show in them.
  const std::vector<uint64_t>& kept_hashes() const { return kept_.hashes(); }
  std::string take_note() { return kept_.take_note(); }  // of this worker alone

 private:
  int64_t find_bad(std::span<const float> gradient) const;
  UpdateResult skip(int64_t flag);
  void lay_out_segments();
  std::vector<NamedTensor> state_to_keep() const;
  void keep();
  void roll_back();
  double learning_rate() const;

  const RecipeSettings& settings_;
  JobState& state_;
  double base_rate_;
  std::vector<bool> decays_;  // per parameter
  bool dynamic_scale_;
  double loss_scale_ = 1, rate_factor_ = 1;
  int64_t updates_ = 0;  // applied ones: Adam's t, the schedule's clock
  int64_t good_in_a_row_ = 0, bad_in_a_row_ = 0, rollbacks_ = 0;
  int64_t kept_updates_ = -1;
  KeptState kept_;
  at::Tensor memory_;                  // on the device: parameters and a decision, for apply()
  at::Tensor segments_, decisions_;    // there too: UpdateSegments, and decisions of several groups
  std::vector<UpdateSegment> layout_;  // the same on the host
  int segment_count_ = 0;
};

}  // namespace tandem
