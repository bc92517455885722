// rl/dqn/dqn_fused_step.cc -- the DQN's whole step as one queue of GPU work, over the shards of a worker. Where others
// hold shards too it has three parts, with a sum over all workers after each:
//   act     | what was counted: the sums of each shard's priorities, which tell where the draws fall
//   serve   | the rows of the draws that fall into these shards, among zeros: everybody has all rows then
//   learn   | the gradients, loss, mean Q and TD errors
#include <ATen/ATen.h>

#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "engine/gpu_device.h"
#include "engine/mirror.h"
#include "nn/here.h"
#include "reduce/sum_tree.h"
#include "rl/dqn/dqn.h"
#include "rl/dqn/dqn_on_gpu.h"

namespace tandem {
namespace {

CUstream_st* fused_stream() { return static_cast<CUstream_st*>(gpu()->current_stream()); }

// What the parts hand to each other.
struct DqnParts {
  explicit DqnParts(const DqnShape& shape)
      : words(shape.agents * acted_words(shape.shards)),
        row_floats(ServedDraws::floats(shape.agents, shape.batch, shape.observation_size)),
        acted_by_all(static_cast<size_t>(words) * sizeof(int64_t)),
        counted(at::zeros({words}, here(at::kLong))),
        served(at::zeros({row_floats}, here())),
        rows(at::zeros({row_floats}, here())) {}

  int64_t words, row_floats;
  Mirror acted_by_all;
  at::Tensor counted, served, rows;
  std::vector<DqnLaunch> learners;  // of each subtree of this worker's, where there are several; else the launch itself
};

}  // namespace

class DqnFusedStep : public FusedStep {
 public:
  DqnFusedStep(DqnOnGpu& gpu, JobState& state)
      : gpu_(gpu),
        seed_(state.seed()),
        launch_(gpu.make_launch(state, state.mine().first, state.mine().size())),
        targets_(state.target_network(0).data()) {
    const DqnShape& h = launch_.shape;
    const auto take = [&](size_t bytes) { return launch_.take(bytes); };
    lay_out_inputs(h, launch_.work, take);
    lay_out_acted(h, launch_.work, take);
    launch_.work.packed_resident = true;
    if (h.local_shards == h.shards)
      launch_.work.shard_priority_sums = nullptr;  // the draws read the trees themselves
    else
      divide(state);
    if (h.dropout <= 0 || (parts_ && !parts_->learners.empty())) return;
    launch_.memory.push_back(at::zeros({int64_t{2} * h.agent_shards() * h.shard_batch * 32}, here(at::kInt)));
    launch_.work.dropout_bits = static_cast<uint32_t*>(launch_.memory.back().data_ptr());
  }

  size_t params_bytes() const override { return sizeof(StepParams); }
  void fill_params(int64_t step, double loss_scale, std::byte* params) override {
    const StepParams now = gpu_.params(seed_, step, loss_scale);
    std::memcpy(params, &now, sizeof(now));
  }
  void queue_first(const std::byte* params) override {
    use(params);
    gpu_.k_.observe(launch_.shape, launch_.work, gpu_.advance_, fused_stream());
    queue_pack_weights();
  }
  void queue_work(const std::byte* params, float* total) override {
    use(params);
    queue_act();
    gpu_.k_.draws(launch_.shape, launch_.work, fused_stream());
    gpu_.k_.learn(launch_.shape, launch_.offsets, launch_.work, total, nullptr, fused_stream());
  }

  std::vector<StepSum> sums() override {
    if (!parts_) return {};
    return {{.counts = static_cast<int>(parts_->words),
             .counted = parts_->counted.data_ptr<int64_t>(),
             .total = reinterpret_cast<int64_t*>(parts_->acted_by_all.on_gpu())},
            {.floats = parts_->row_floats,
             .mine = parts_->served.data_ptr<float>(),
             .joined = parts_->rows.data_ptr<float>()}};
  }
  void queue_part(int part, const std::byte* params, const int64_t* hold, std::span<float* const> gradients) override {
    use(params);
    launch_.work.hold = hold;
    if (part == 0) {
      queue_act();
      gpu_.k_.acted(launch_.shape, launch_.work, parts_->counted.data_ptr<int64_t>(), fused_stream());
    } else if (part == 1) {
      const ServedDraws draws{nullptr, reinterpret_cast<std::byte*>(parts_->served.data_ptr<float>())};
      gpu_.k_.serve(launch_.shape, launch_.work, draws, fused_stream());
    } else if (parts_->learners.empty()) {
      queue_learn(launch_, gradients[0]);
    } else {
      for (size_t k = 0; k < gradients.size(); ++k) {
        DqnLaunch& learner = parts_->learners[k];
        learner.work.hold = hold;
        gpu_.k_.pack_weights(learner.shape, learner.offsets, learner.work, fused_stream());
        queue_learn(learner, gradients[k]);
      }
    }
  }
  void queue_combined(const float* total, const int64_t* hold) override {
    launch_.work.hold = hold;
    gpu_.k_.combined(launch_.shape, launch_.work, total + first_of_tail_, fused_stream());
  }

  size_t output_bytes() const override { return sizeof(StepOutputs) * static_cast<size_t>(launch_.shape.agents); }
  TargetUpdate target_update() const override { return {targets_, static_cast<float>(gpu_.dqn_.s_.target_rate)}; }
  void queue_applied(const UpdateDecision* decision, std::byte* outputs) override {
    launch_.work.outputs = reinterpret_cast<StepOutputs*>(outputs);
    gpu_.k_.after_update(launch_.shape, launch_.offsets, launch_.work, decision, fused_stream());
    if (parts_) parts_->acted_by_all.queue_down();
  }
  void apply_earlier_phases(const std::byte* outputs, StepContext& context) override {
    Dqn& dqn = gpu_.dqn_;
    if (parts_) {
      const auto* const counts = reinterpret_cast<const int64_t*>(parts_->acted_by_all.on_host());
      return dqn.record_acted({counts, static_cast<size_t>(parts_->words)}, context);
    }
    const auto* const all = reinterpret_cast<const StepOutputs*>(outputs);
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
  void divide(JobState& state) {
    const DqnShape& h = launch_.shape;
    parts_.emplace(h);
    launch_.work.acted_by_all = reinterpret_cast<const int64_t*>(parts_->acted_by_all.on_gpu());
    first_of_tail_ = state.contribution_floats() - h.agents * (2 + h.batch);
    const SumTree tree(h.shards);
    const std::vector<int> nodes = tree.cover(h.first_shard, h.first_shard + h.local_shards);
    for (const int node : nodes) {
      if (nodes.size() == 1) break;
      const int first = tree.node(node).first;
      DqnLaunch& learner = parts_->learners.emplace_back(gpu_.make_launch(state, first, tree.node(node).last - first));
      lay_out_inputs(learner.shape, learner.work, [&](size_t bytes) { return learner.take(bytes); });
      learner.work.packed_resident = true;  // queue_part() packs them; the launch may have no use for any
    }
  }
  void use(const std::byte* params) {
    launch_.work.params = reinterpret_cast<const StepParams*>(params);
    if (!parts_) return;
    for (DqnLaunch& learner : parts_->learners) learner.work.params = launch_.work.params;
  }
  void queue_act() {
    gpu_.k_.act(launch_.shape, launch_.offsets, launch_.work, gpu_.resting_ ? nullptr : gpu_.advance_, fused_stream());
  }
  // Of the rows that its shards received.
  void queue_learn(const DqnLaunch& learner, float* gradient) {
    const auto* const rows = reinterpret_cast<const std::byte*>(parts_->rows.data_ptr<float>());
    gpu_.k_.receive(learner.shape, learner.work, rows, fused_stream());
    gpu_.k_.learn(learner.shape, learner.offsets, learner.work, gradient, gradient + first_of_tail_, fused_stream());
  }
  void queue_pack_weights() { gpu_.k_.pack_weights(launch_.shape, launch_.offsets, launch_.work, fused_stream()); }

  DqnOnGpu& gpu_;
  uint64_t seed_;
  DqnLaunch launch_;
  float* targets_;  // of all agents, as their weights lie
  std::optional<DqnParts> parts_;
  int64_t first_of_tail_ = 0;  // of a combined vector
};

std::unique_ptr<FusedStep> DqnOnGpu::fused_step(JobState& state) {
  return learns_batched() ? std::make_unique<DqnFusedStep>(*this, state) : nullptr;
}

}  // namespace tandem
