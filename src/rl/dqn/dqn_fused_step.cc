// rl/dqn/dqn_fused_step.cc -- the DQN's whole step as one queue of GPU work, for a worker that holds all shards.
#include <ATen/ATen.h>

#include <cstring>

#include "engine/gpu_device.h"
#include "nn/here.h"
#include "rl/dqn/dqn.h"
#include "rl/dqn/dqn_on_gpu.h"

namespace tandem {
namespace {

CUstream_st* fused_stream() { return static_cast<CUstream_st*>(gpu()->current_stream()); }

}  // namespace

class DqnFusedStep : public FusedStep {
 public:
  DqnFusedStep(DqnOnGpu& gpu, JobState& state)
      : gpu_(gpu),
        seed_(state.seed()),
        launch_(gpu.make_launch(state, 0, state.shards())),
        targets_(state.target_network(0).data()) {
    const DqnShape& h = launch_.shape;
    const auto take = [&](size_t bytes) { return launch_.take(bytes); };
    lay_out_inputs(h, launch_.work, take);
    lay_out_acted(h, launch_.work, take);
    launch_.work.shard_priority_sums = nullptr;  // the draws read the trees themselves
    launch_.work.packed_resident = true;
    if (h.dropout <= 0) return;
    launch_.memory.push_back(at::zeros({int64_t{2} * h.agent_shards() * h.shard_batch * 32}, here(at::kInt)));
    launch_.work.dropout_bits = static_cast<uint32_t*>(launch_.memory.back().data_ptr());
  }

  size_t params_bytes() const override { return sizeof(StepParams); }
  void fill_params(int64_t step, double loss_scale, std::byte* params) override {
    const StepParams now = gpu_.params(seed_, step, loss_scale);
    std::memcpy(params, &now, sizeof(now));
  }
  void queue_first(const std::byte* params) override {
    launch_.work.params = reinterpret_cast<const StepParams*>(params);
    gpu_.k_.observe(launch_.shape, launch_.work, gpu_.advance_, fused_stream());
    queue_pack_weights();
  }
  void queue_work(const std::byte* params, float* total) override {
    launch_.work.params = reinterpret_cast<const StepParams*>(params);
    const DqnWork& work = launch_.work;
    gpu_.k_.act(launch_.shape, launch_.offsets, work, gpu_.resting_ ? nullptr : gpu_.advance_, fused_stream());
    gpu_.k_.draws(launch_.shape, work, fused_stream());
    gpu_.k_.learn(launch_.shape, launch_.offsets, work, total, nullptr, fused_stream());
  }
  size_t output_bytes() const override { return sizeof(StepOutputs) * static_cast<size_t>(launch_.shape.agents); }
  TargetUpdate target_update() const override { return {targets_, static_cast<float>(gpu_.dqn_.s_.target_rate)}; }
  void queue_applied(const UpdateDecision* decision, std::byte* outputs) override {
    launch_.work.outputs = reinterpret_cast<StepOutputs*>(outputs);
    gpu_.k_.after_update(launch_.shape, launch_.offsets, launch_.work, decision, fused_stream());
  }
  void apply_earlier_phases(const std::byte* outputs, StepContext& context) override {
    const auto* const all = reinterpret_cast<const StepOutputs*>(outputs);
    Dqn& dqn = gpu_.dqn_;
    context.record->metrics.emplace_back("epsilon", dqn.epsilon(context.step));
    for (int j = 0; j < dqn.agents(); ++j)
      dqn.record_returns(j, static_cast<double>(all[j].episodes), all[j].returns, context);
  }
  void apply(const std::byte* outputs, StepContext& context) override {
    const auto* const all = reinterpret_cast<const StepOutputs*>(outputs);
    Dqn& dqn = gpu_.dqn_;
    double loss = 0;
    for (int j = 0; j < dqn.agents(); ++j) {
      loss += all[j].loss;
      context.record->metrics.emplace_back(dqn.metric(j, "mean_q"), all[j].mean_q);
      if (context.skipped) dqn.agents_[j].td_errors.fill_(-1);  // again: a roll-back may have put older ones there
    }
    if (context.skipped) queue_pack_weights();  // as it may have put older weights there
    context.record->loss = loss / dqn.agents();
    context.record->samples = static_cast<double>(dqn.s_.batch_size * dqn.agents());
  }

 private:
  void queue_pack_weights() { gpu_.k_.pack_weights(launch_.shape, launch_.offsets, launch_.work, fused_stream()); }

  DqnOnGpu& gpu_;
  uint64_t seed_;
  DqnLaunch launch_;
  float* targets_;  // of all agents, as their weights lie
};

std::unique_ptr<FusedStep> DqnOnGpu::fused_step(JobState& state) {
  return learns_batched() ? std::make_unique<DqnFusedStep>(*this, state) : nullptr;
}

}  // namespace tandem
