#include "rl/dqn/dqn_on_gpu.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/errors.h"
#include "engine/gpu_device.h"
#include "nn/here.h"
#include "reduce/sum_tree.h"
#include "rl/dqn/dqn.h"
#include "rl/replay/priority.h"
#include "rl/replay/priority_tree.h"

namespace tandem {
namespace {

CUstream_st* stream() { return static_cast<CUstream_st*>(gpu()->current_stream()); }

Precision precision_of(const std::string& name) {
  using enum Precision;
  return name == "tf32" ? kTf32 : name == "bf16" ? kBf16 : name == "fp16" ? kFp16 : kFp32;
}

// TANDEM_DQN_TILES: how launches are cut into blocks changes no bit, so it is no setting.
BlockChoice block_choice(const std::string& precision) {
  BlockChoice choice{.precision = precision_of(precision)};
  const char* const asked = std::getenv("TANDEM_DQN_TILES");
  if (!asked || !*asked) return choice;
  for (const int tiles : {1, 2, 4})
    if (asked == std::to_string(tiles)) choice.tiles = tiles;
  for (const int rows : {16, 24, 40})
    if (asked == std::to_string(rows)) choice.rows = rows;
  if (choice.tiles == 0 && choice.rows == 0)
    throw ConfigError(fmt::format("TANDEM_DQN_TILES={} is not known", asked),
                      "it says what a block of threads computes: 1, 2 or 4 tiles of a GEMM, or all layers of 16, 24 or "
                      "40 rows",
                      "set one of these, or unset it");
  return choice;
}

// Whether the partial sums that wait while shards are added in order fit the kernels' stack.
bool fits_stack(const std::vector<int>& merges) {
  int waiting = 0, most = 0;
  for (const int joined : merges) {
    most = std::max(most, waiting + (joined > 0 ? 0 : 1));
    waiting += 1 - joined;
  }
  return most <= kMaxGpuPending;
}

std::vector<int> merges_of_tree(int shards) {
  const SumTree tree(shards);
  return tree.merges(tree.root());
}

}  // namespace

std::unique_ptr<DqnOnGpu> DqnOnGpu::make(Dqn& dqn, std::string* why) {
  const DqnSettings& s = dqn.s_;
  const auto no = [&](const char* reason) {
    if (gpu()) *why = reason;
    return nullptr;
  };
  if (!gpu()) return nullptr;
  if (!s.experience.files.empty()) return no("experience of a real system");
  if (s.net.attention) return no("net.attention");
  if (s.accumulation != 1) return no("accumulation");
  if (s.net.hidden.size() != 2) return no("other than two hidden layers");
  if (s.shards > 32) return no("more than 32 shards");
  if (s.batch_size > kMaxGpuBatch) return no("a batch above 4096");
  if (s.n_step > kMaxGpuSteps) return no("n_step above 32");
  const auto* const kernels = gpu()->kernels<DqnKernels>();
  if (!kernels) return no("a GPU library without them");
  const auto odd = [](int64_t width) { return width % 4 != 0; };
  if (std::ranges::any_of(s.net.hidden, [&](int64_t width) { return odd(width) || width > kMaxGpuWidth; }) ||
      odd(s.net.head) || odd(dqn.shape_.observation_size))
    return no("widths that four does not divide, or above 1024");
  if (dqn.environment().actions() > kMaxGpuActions) return no("more than 16 actions");
  GpuAdvance advance = nullptr;
  for (int agent = 0; agent < dqn.agents(); ++agent) {
    const auto environment = dqn.environment(agent).on_gpu();
    if (!environment || (advance && environment->advance != advance)) return no("environments that live on the host");
    advance = environment->advance;
  }
  return std::unique_ptr<DqnOnGpu>(new DqnOnGpu(dqn, *kernels, advance));
}

DqnOnGpu::Launch DqnOnGpu::make_launch(JobState& state, int first, int count) {
  const DqnSettings& s = dqn_.s_;
  const int agents = dqn_.agents();
  Launch made;
  DqnShape& h = made.shape;
  h = {.agents = agents,
       .shards = static_cast<int32_t>(s.shards),
       .blocks = block_choice(s.precision),
       .first_shard = first,
       .local_shards = count,
       .shard_batch = static_cast<int32_t>(s.micro_batch_size()),
       .batch = static_cast<int32_t>(s.batch_size),
       .environments = static_cast<int32_t>(s.environments),
       .observation_size = static_cast<int32_t>(dqn_.shape_.observation_size),
       .hidden1 = static_cast<int32_t>(s.net.hidden[0]),
       .hidden2 = static_cast<int32_t>(s.net.hidden[1]),
       .head = static_cast<int32_t>(s.net.head),
       .actions = static_cast<int32_t>(dqn_.environment().actions()),
       .n_step = static_cast<int32_t>(s.n_step),
       .ring_rows = dqn_.shape_.rows,
       .gamma = static_cast<float>(s.gamma),
       .alpha = s.alpha,
       .dropout = s.net.dropout};
  h.levels = PriorityTree::places(dqn_.shape_.leaves(), h.level_first);
  if (count > 1) std::ranges::copy(merges_of_tree(count), h.merges);

  const std::string prefix = agents > 1 ? dqn_.agents_[0].name + "." : "";
  const auto place = [&](const std::string& name) {
    for (const ParameterEntry& entry : state.parameter_entries())
      if (entry.name == prefix + name) return entry.offset;
    throw std::logic_error("the net has no " + name);
  };
  made.offsets = {place("hidden1.weight"),   place("hidden1.bias"),  place("norm1.weight"), place("norm1.bias"),
                  place("hidden2.weight"),   place("hidden2.bias"),  place("norm2.weight"), place("norm2.bias"),
                  place("heads.weight"),     place("heads.bias"),    place("value.weight"), place("value.bias"),
                  place("advantage.weight"), place("advantage.bias")};

  const auto bytes = [&](size_t n) {
    made.memory.push_back(at::zeros({static_cast<int64_t>(std::max<size_t>(n, 16))}, here(at::kByte)));
    return made.memory.back().data_ptr();
  };
  const auto floats = [&](int64_t n) { return static_cast<float*>(bytes(static_cast<size_t>(n) * sizeof(float))); };
  const auto ints = [&](int64_t n) { return static_cast<int32_t*>(bytes(static_cast<size_t>(n) * sizeof(int32_t))); };
  const auto longs = [&](int64_t n) { return static_cast<int64_t*>(bytes(static_cast<size_t>(n) * sizeof(int64_t))); };
  DqnWork& w = made.work;
  const int64_t all = h.agent_shards(), acting = all * h.environments, learning = all * h.shard_batch;
  const int64_t passing = std::max(acting, 3 * learning);
  w.observed = floats(acting * h.observation_size);
  w.rewards = floats(acting);
  w.actions = ints(acting);
  w.ends = ints(acting);
  w.states = floats(2 * learning * h.observation_size);
  w.reward = floats(learning);
  w.discount = floats(learning);
  w.action = ints(learning);
  w.priority = longs(learning);
  w.preact1 = floats(passing * h.hidden1);
  w.preact2 = floats(passing * h.hidden2);
  w.head_features = floats(passing * 2 * h.head);
  w.out1 = floats(learning * h.hidden1);
  w.out2 = floats(learning * h.hidden2);
  w.inv_std1 = floats(learning);
  w.inv_std2 = floats(learning);
  w.head_grad = floats(learning * 2 * h.head);
  w.norm_out_grad2 = floats(learning * h.hidden2);
  w.preact_grad2 = floats(learning * h.hidden2);
  w.norm_out_grad1 = floats(learning * h.hidden1);
  w.preact_grad1 = floats(learning * h.hidden1);
  w.out_grad = floats(learning * (1 + h.actions));
  w.row_loss = floats(learning);
  w.row_q = floats(learning);
  w.agent_sums = floats(2 * agents);
  w.shard_returns = floats(all);
  w.shard_episodes = longs(all);
  w.dropout_bits = nullptr;
  w.packed = nullptr;
  if (is_16bit(h.blocks.precision))
    w.packed = bytes(size_t{kPackedFragmentBytes} * static_cast<size_t>(agents) *
                     static_cast<size_t>(PackedNetLayout(h).per_agent));
  w.packed_resident = false;
  w.params = static_cast<const StepParams*>(bytes(sizeof(StepParams)));
  w.outputs = static_cast<StepOutputs*>(bytes(sizeof(StepOutputs) * static_cast<size_t>(agents)));

  std::vector<GpuDqnAgent> agent_table;
  std::vector<DqnShard> shard_table;
  std::vector<ShardEnvironments> environment_table;
  for (int j = 0; j < agents; ++j) {
    const DqnAgent& a = dqn_.agents_[j];
    const int64_t begin = j * (state.parameter_floats() / agents);
    int64_t* const priorities = a.priority_range.data_ptr<int64_t>();  // the largest seen, the least drawn
    agent_table.push_back({state.parameters().data() + begin, state.target_network(0).data() + begin,
                           a.td_errors.data_ptr<float>(), priorities, priorities + 1,
                           a.priority_sums.data_ptr<int64_t>(), begin});
    for (int shard = first; shard < first + count; ++shard) {
      const int64_t row = (j * count + shard - first) * h.environments;
      const auto field = [&](ShardField f) { return state.shard(f, shard).data_ptr(); };
      shard_table.push_back({static_cast<float*>(field(a.returns)), static_cast<float*>(field(a.seen)),
                             static_cast<ReplayRow*>(field(a.rows)), static_cast<int64_t*>(field(a.written)),
                             static_cast<int64_t*>(field(a.priorities)), static_cast<int32_t*>(field(a.drawn))});
      environment_table.push_back({a.environment->on_gpu()->kind, static_cast<uint32_t>(shard),
                                   static_cast<std::byte*>(field(a.states)), w.actions + row, w.rewards + row,
                                   w.ends + row, w.observed + row * h.observation_size});
    }
  }
  const auto table = [&](const auto& rows) {
    void* const there = bytes(rows.size() * sizeof(rows[0]));
    device().from_host(there, rows.data(), rows.size() * sizeof(rows[0]));
    return there;
  };
  w.agents = static_cast<const GpuDqnAgent*>(table(agent_table));
  w.shards = static_cast<const DqnShard*>(table(shard_table));
  w.environments = static_cast<const ShardEnvironments*>(table(environment_table));
  made.version = state.version();
  return made;
}

StepParams DqnOnGpu::params(uint64_t seed, int64_t step, double loss_scale) const {
  return {{.seed = seed, .step = static_cast<uint64_t>(step)},
          dqn_.epsilon(step),
          dqn_.beta(step),
          static_cast<float>(loss_scale)};
}

// ---- phase by phase, one shard at a time ----

DqnOnGpu::Launch& DqnOnGpu::launch_of(ShardContext& context) {
  Launch& launch = launches_[context.shard];
  if (launch.version != context.job().version()) launch = make_launch(context.job(), context.shard, 1);
  return launch;
}

void DqnOnGpu::run(DqnPhase phase, ShardContext& context) {
  Launch& launch = launch_of(context);
  switch (phase) {
    case kActPhase:
      return act(launch, context);
    case kServePhase:
      return serve(launch, context);
    case kLearnPhase:
      return learn(launch, context);
  }
  throw std::logic_error("the DQN has no such phase");
}

void DqnOnGpu::act(Launch& launch, ShardContext& context) {
  const StepParams now = params(context.random(0).seed, context.step, context.loss_scale());
  device().from_host(const_cast<StepParams*>(launch.work.params), &now, sizeof(now));
  k_.observe(launch.shape, launch.work, advance_, stream());
  k_.act(launch.shape, launch.offsets, launch.work, advance_, stream());
  const int64_t root = launch.shape.level_first[launch.shape.levels - 1];
  for (int j = 0; j < dqn_.agents(); ++j) {
    int64_t* const counts = context.counts.data() + j * (1 + context.shards);
    device().to_host(&context.floats[j], launch.work.shard_returns + j, sizeof(float));
    device().to_host(counts, launch.work.shard_episodes + j, sizeof(int64_t));
    const at::Tensor& tree = context.state(dqn_.agents_[j].priorities);
    device().to_host(counts + 1 + context.shard, tree.data_ptr<int64_t>() + root, sizeof(int64_t));
  }
}

void DqnOnGpu::serve(Launch& launch, ShardContext& context) {
  const int64_t batch = launch.shape.batch, width = launch.shape.observation_size, each = batch / context.shards;
  const size_t observations = 2 * static_cast<size_t>(width) * sizeof(float);
  const at::Tensor heads = at::empty({dqn_.agents() * batch, static_cast<int64_t>(sizeof(cuda::DrawnRow))},
                                     here(at::kByte)),
                   states = at::empty({dqn_.agents() * batch, 2, width}, here());
  const StepParams now = params(context.random(0).seed, context.step, context.loss_scale());
  device().from_host(const_cast<StepParams*>(launch.work.params), &now, sizeof(now));
  k_.serve(launch.shape, launch.work, reinterpret_cast<cuda::DrawnRow*>(heads.data_ptr()), states.data_ptr<float>(),
           stream());
  const at::Tensor heads_here = heads.cpu(), states_here = states.cpu();
  for (int j = 0; j < dqn_.agents(); ++j) {
    int64_t least = kNoPriority;
    for (int64_t learner = 0; learner < context.shards; ++learner) {
      std::vector<std::byte> message;
      for (int64_t k = learner * each; k < (learner + 1) * each; ++k) {
        const auto& head = reinterpret_cast<const cuda::DrawnRow*>(heads_here.data_ptr())[j * batch + k];
        if (head.draw < 0) continue;
        const TravellingRow row{head.priority, head.draw, j, {head.reward, head.discount, head.action}};
        const size_t at = message.size();
        message.resize(at + sizeof(row) + observations);
        std::memcpy(message.data() + at, &row, sizeof(row));
        std::memcpy(message.data() + at + sizeof(row), states_here.data_ptr<float>() + (j * batch + k) * 2 * width,
                    observations);
        least = std::min(least, head.priority);
      }
      if (!message.empty()) context.send(static_cast<int>(learner), message);
    }
    context.maxima[j] = kNoPriority - least;
  }
}

std::vector<at::Tensor> DqnOnGpu::inputs(const ShardContext& context, const at::Tensor& states,
                                         const at::Tensor& reward, const at::Tensor& discount, const at::Tensor& action,
                                         const at::Tensor& priority) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(sizeof(StepParams))}, at::kByte);
  const StepParams now = params(context.random(0).seed, context.step, context.loss_scale());
  std::memcpy(bytes.data_ptr(), &now, sizeof(now));
  return {states, reward, discount, action.to(at::kInt), priority, bytes};
}

void DqnOnGpu::learn(Launch& launch, ShardContext& context) {
  const std::vector<at::Tensor>& in = context.inputs();
  DqnWork work = launch.work;
  work.states = in[0].data_ptr<float>();
  work.reward = in[1].data_ptr<float>();
  work.discount = in[2].data_ptr<float>();
  work.action = in[3].data_ptr<int32_t>();
  work.priority = in[4].data_ptr<int64_t>();
  work.params = static_cast<const StepParams*>(in[5].data_ptr());
  k_.learn(launch.shape, launch.offsets, work, context.gradient().data(), context.sums_on_gpu(), stream());
}

// ---- a whole step ----

class DqnFusedStep : public FusedStep {
 public:
  DqnFusedStep(DqnOnGpu& gpu, JobState& state)
      : gpu_(gpu),
        seed_(state.seed()),
        launch_(gpu.make_launch(state, 0, state.shards())),
        targets_(state.target_network(0).data()) {
    launch_.work.packed_resident = true;
    const DqnShape& h = launch_.shape;
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
    gpu_.k_.observe(launch_.shape, launch_.work, gpu_.advance_, stream());
    queue_pack_weights();
  }
  void queue_work(const std::byte* params, float* total) override {
    launch_.work.params = reinterpret_cast<const StepParams*>(params);
    const DqnWork& work = launch_.work;
    gpu_.k_.act(launch_.shape, launch_.offsets, work, gpu_.resting_ ? nullptr : gpu_.advance_, stream());
    gpu_.k_.draws(launch_.shape, work, stream());
    gpu_.k_.learn(launch_.shape, launch_.offsets, work, total, nullptr, stream());
  }
  size_t output_bytes() const override { return sizeof(StepOutputs) * static_cast<size_t>(launch_.shape.agents); }
  TargetUpdate target_update() const override { return {targets_, static_cast<float>(gpu_.dqn_.s_.target_rate)}; }
  void queue_applied(const UpdateDecision* decision, std::byte* outputs) override {
    launch_.work.outputs = reinterpret_cast<StepOutputs*>(outputs);
    gpu_.k_.after_update(launch_.shape, launch_.offsets, launch_.work, decision, stream());
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
  void queue_pack_weights() { gpu_.k_.pack_weights(launch_.shape, launch_.offsets, launch_.work, stream()); }

  DqnOnGpu& gpu_;
  uint64_t seed_;
  DqnOnGpu::Launch launch_;
  float* targets_;  // of all agents, as their weights lie
};

std::unique_ptr<FusedStep> DqnOnGpu::fused_step(JobState& state) {
  if (!fits_stack(merges_of_tree(state.shards()))) return nullptr;
  return std::make_unique<DqnFusedStep>(*this, state);
}

}  // namespace tandem
