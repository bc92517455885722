#include "engine/update.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "engine/schedule.h"
#include "kernels/device.h"
#include "nn/here.h"
#include "telemetry/step_record.h"

namespace tandem {

int optimizer_states(const OptimizerSettings& optimizer) {
  if (optimizer.kind != "sgd") return 2;
  return optimizer.momentum > 0 ? 1 : 0;
}

Update::Update(const RecipeSettings& settings, JobState& state, int64_t global_batch, int64_t most_kept_on_device)
    : settings_(settings),
      state_(state),
      base_rate_(settings.optimizer.learning_rate * batch_factor(settings.schedule, global_batch)),
      dynamic_scale_(settings.precision == "fp16"),
      kept_(most_kept_on_device) {
  for (const ParameterEntry& entry : state.parameter_entries())
    decays_.push_back(settings.optimizer.decay_vectors || entry.sizes.size() >= 2);
  lay_out_segments();
  // A power of two, so that unscaling is exact.
  if (dynamic_scale_) loss_scale_ = std::exp2(std::floor(std::log2(settings.amp.initial_scale)));
  if (settings.nan.rollback_every > 0) keep();  // from the start, so that a snapshot's layout never changes
}

// Stretches of the buffer with one decay and one group; padding belongs to the tensor before it and stays 0.
void Update::lay_out_segments() {
  const auto& layout = state_.parameter_entries();
  const int64_t all = state_.parameter_floats(), group = all / state_.groups();
  std::vector<UpdateSegment>& segments = layout_;
  for (size_t i = 0; i < layout.size(); ++i) {
    const UpdateSegment next{.end = i + 1 < layout.size() ? layout[i + 1].offset : all,
                             .decays = decays_[i] && settings_.optimizer.weight_decay != 0 ? 1 : 0,
                             .group = static_cast<int32_t>(layout[i].offset / group)};
    if (!segments.empty() && segments.back().decays == next.decays && segments.back().group == next.group)
      segments.back().end = next.end;
    else
      segments.push_back(next);
  }
  segment_count_ = static_cast<int>(segments.size());
  const auto bytes = [](size_t n) { return at::empty({static_cast<int64_t>(n)}, here(at::kByte)); };
  segments_ = bytes(std::max<size_t>(1, segments.size()) * sizeof(UpdateSegment));
  device().from_host(segments_.data_ptr(), segments.data(), segments.size() * sizeof(UpdateSegment));
  decisions_ = bytes(static_cast<size_t>(state_.groups()) * sizeof(UpdateDecision));
}

void Update::begin_step(int64_t step) {
  const int64_t every = settings_.nan.rollback_every;
  if (every > 0 && step % every == 0 && bad_in_a_row_ == 0) keep();
}

std::vector<NamedTensor> Update::state_to_keep() const {
  std::vector<NamedTensor> now = state_.model_tensors();
  for (NamedTensor& t : state_.replicated_state()) now.push_back(std::move(t));
  return now;
}

void Update::keep() {
  kept_.keep(state_to_keep());
  kept_updates_ = updates_;
}

void Update::roll_back() {
  kept_.restore(state_to_keep());
  updates_ = kept_updates_;
}

// Where a combined gradient is bad: the flag of the shard that raised it, or with one shard its own tensor.
int64_t Update::find_bad(std::span<const float> gradient) const {
  const int64_t bad = device().first_nonfinite(gradient.data(), static_cast<int64_t>(gradient.size()));
  if (bad < 0) return 0;
  return nan_flag(state_.shards() > 1 ? -1 : 0, state_.tensor_at(bad));
}

UpdateResult Update::skip(int64_t flag) {
  UpdateResult result{.skipped = true, .learning_rate = 0, .grad_norm = kAbsent, .loss_scale = loss_scale_};
  good_in_a_row_ = 0;
  const std::string where =
      flag == 0 ? std::string("the combined gradient")
      : nan_flag_shard(flag) < 0
          ? state_.tensor_text(nan_flag_tensor(flag)) + " in some shard"
          : fmt::format("{} in shard {}", state_.tensor_text(nan_flag_tensor(flag)), nan_flag_shard(flag));
  if (dynamic_scale_ && loss_scale_ > 1) {  // fp16 overflow: expected now and then, answered by a smaller scale
    loss_scale_ /= 2;
    result.note = fmt::format("overflow in {}; update skipped, loss scale now {:g}", where, loss_scale_);
    return result;
  }
  ++bad_in_a_row_;
  result.note = fmt::format("NaN or Inf in {}; update skipped ({} in a row)", where, bad_in_a_row_);
  if (bad_in_a_row_ < settings_.nan.patience) return result;
  if (kept_updates_ < 0 || rollbacks_ >= settings_.nan.max_rollbacks)
    throw Error(
        ExitCode::kGuardStopped, fmt::format("training stopped: NaN or Inf in {}", where),
        fmt::format("{} updates in a row were skipped, after {} roll-backs at lower learning rates", bad_in_a_row_,
                    rollbacks_),
        "lower optimizer.learning_rate, set clip_norm, or look at the data; the last good state is in checkpoints/");
  roll_back();
  ++rollbacks_;
  rate_factor_ /= 2;
  bad_in_a_row_ = 0;
  result.rolled_back = true;
  result.note += fmt::format("; rolled back to update {} at {:g} of the learning rate", updates_, rate_factor_);
  return result;
}

UpdateResult Update::apply(std::span<const float> total, int64_t flag) {
  struct ParamsAndDecision {
    UpdateParams params;
    UpdateDecision decision;
  } host{.params = params(flag)};
  if (!memory_.defined()) memory_ = at::empty({static_cast<int64_t>(sizeof(host))}, here(at::kByte));
  auto* there = static_cast<ParamsAndDecision*>(memory_.data_ptr());
  device().from_host(&there->params, &host.params, sizeof(host.params));
  queue(total, &there->params, &there->decision, {});
  device().to_host(&host.decision, &there->decision, sizeof(host.decision));
  return settle(total, flag, host.decision);
}

double Update::learning_rate() const {
  return base_rate_ * rate_factor_ * schedule_factor(settings_.schedule, updates_);
}

UpdateParams Update::params(int64_t flag) const {
  const OptimizerSettings& o = settings_.optimizer;
  const double rate = learning_rate();
  UpdateParams params{.loss_scale = loss_scale_, .clip_norm = settings_.clip_norm, .flag = flag};
  for (int decays : {0, 1}) {
    const double decay = decays ? o.weight_decay : 0;
    params.adam[decays] = adam_params(rate, o.beta1, o.beta2, o.epsilon, decay, o.kind == "adamw", updates_ + 1);
    params.sgd[decays] = {.lr = static_cast<float>(rate),
                          .momentum = static_cast<float>(o.momentum),
                          .weight_decay = static_cast<float>(decay),
                          .nesterov = o.nesterov,
                          .first = updates_ == 0};
  }
  return params;
}

void Update::queue(std::span<const float> total, const UpdateParams* params, UpdateDecision* decision,
                   std::span<const int64_t> bad, const TargetUpdate& target) {
  const std::span<const float> gradient = total.first(state_.parameter_floats());
  const std::span<float> running = state_.running_statistics();
  const float* statistics = total.data() + gradient.size();
  const int64_t group = static_cast<int64_t>(gradient.size()) / state_.groups();
  UpdateDecision* const decisions =
      state_.groups() > 1 ? static_cast<UpdateDecision*>(decisions_.data_ptr()) : decision;
  constexpr int64_t kFew = int64_t{1} << 22;  // floats whose norm two launches find quickly
  if (state_.groups() > 1 || (device().is_cuda() && running.empty() && group <= kFew))
    device().decide_groups(decisions, decision, params, gradient.data(), group, state_.groups(), bad.data(),
                           static_cast<int>(bad.size()));
  else
    device().decide_update(decision, params, gradient.data(), group, statistics, state_.statistic_floats(), bad.data(),
                           static_cast<int>(bad.size()));
  const OptimizerSettings& o = settings_.optimizer;
  const int states = optimizer_states(o);
  float* p = state_.parameters().data();
  float* first = states > 0 ? state_.optimizer_state(0).data() : nullptr;
  float* second = states > 1 ? state_.optimizer_state(1).data() : nullptr;
  if (o.kind != "sgd") {
    device().adam_update(p, gradient.data(), first, second, static_cast<const UpdateSegment*>(segments_.data_ptr()),
                         segment_count_, static_cast<int64_t>(gradient.size()), params, decisions, target);
  } else {  // one launch for each segment
    for (int64_t i = 0, begin = 0; i < segment_count_; begin = layout_[i++].end)
      device().sgd_update(p + begin, gradient.data() + begin, first ? first + begin : nullptr, layout_[i].end - begin,
                          &params->sgd[layout_[i].decays], decisions + layout_[i].group);
    if (target.weights)
      device().soft_update(target.weights, p, target.rate, static_cast<int64_t>(gradient.size()), decision);
  }
  if (!running.empty())
    device().soft_update(running.data(), statistics, static_cast<float>(settings_.bn_momentum),
                         static_cast<int64_t>(running.size()), decision);
}

UpdateResult Update::settle(std::span<const float> total, int64_t flag, const UpdateDecision& decision) {
  if (decision.skip) return skip(flag ? flag : find_bad(total.first(state_.parameter_floats())));
  bad_in_a_row_ = 0;
  UpdateResult result{
      .learning_rate = learning_rate(), .grad_norm = decision.norm / loss_scale_, .loss_scale = loss_scale_};
  ++updates_;
  if (dynamic_scale_ && ++good_in_a_row_ >= settings_.amp.growth_steps) {
    loss_scale_ = std::min(loss_scale_ * 2, 0x1p24);
    good_in_a_row_ = 0;
  }
  return result;
}

nlohmann::json Update::save() const {
  return {{"updates", updates_},           {"loss_scale", loss_scale_},
          {"rate_factor", rate_factor_},   {"good_in_a_row", good_in_a_row_},
          {"bad_in_a_row", bad_in_a_row_}, {"rollbacks", rollbacks_},
          {"kept_updates", kept_updates_}};
}

void Update::load(const nlohmann::json& saved) {
  updates_ = saved.at("updates");
  loss_scale_ = saved.at("loss_scale");
  rate_factor_ = saved.at("rate_factor");
  good_in_a_row_ = saved.at("good_in_a_row");
  bad_in_a_row_ = saved.at("bad_in_a_row");
  rollbacks_ = saved.at("rollbacks");
  kept_updates_ = saved.at("kept_updates");
  kept_.forget_hashes();
}

std::vector<NamedTensor> Update::kept_state() {
  std::vector<NamedTensor> tensors;
  for (const NamedTensor& t : kept_.tensors()) tensors.push_back({"kept." + t.name, t.tensor, t.like_parameters});
  return tensors;
}

}  // namespace tandem
