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
#include "rl/replay/priority_tree.h"

namespace tandem {
namespace {

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

DqnOnGpu::DqnOnGpu(Dqn& dqn, const DqnKernels& kernels, GpuAdvance advance)
    : dqn_(dqn), k_(kernels), advance_(advance), replicated_(dqn.agents(), dqn.s_.shards, dqn.s_.batch_size) {}

bool DqnOnGpu::learns_batched() const { return fits_stack(dqn_.merges_); }

void* DqnLaunch::take(size_t bytes) {
  memory.push_back(at::zeros({static_cast<int64_t>(std::max<size_t>(bytes, 16))}, here(at::kByte)));
  return memory.back().data_ptr();
}

void lay_out_inputs(const DqnShape& shape, DqnWork& work, const TakeMemory& take) {
  const size_t rows = static_cast<size_t>(shape.agent_shards()) * static_cast<size_t>(shape.shard_batch);
  const auto floats = [&](size_t n) { return static_cast<float*>(take(n * sizeof(float))); };
  work.params = static_cast<const StepParams*>(take(sizeof(StepParams)));
  work.states = floats(2 * rows * static_cast<size_t>(shape.observation_size));
  work.reward = floats(rows);
  work.discount = floats(rows);
  work.action = static_cast<int32_t*>(take(rows * sizeof(int32_t)));
  work.priority = static_cast<int64_t*>(take(rows * sizeof(int64_t)));
}

void lay_out_acted(const DqnShape& shape, DqnWork& work, const TakeMemory& take) {
  const size_t all = static_cast<size_t>(shape.agent_shards());
  work.shard_episodes = static_cast<int64_t*>(take(all * sizeof(int64_t)));
  work.shard_priority_sums = static_cast<int64_t*>(take(all * sizeof(int64_t)));
  work.shard_returns = static_cast<float*>(take(all * sizeof(float)));
}

DqnShape DqnOnGpu::shape_of(int first, int count) const {
  const DqnSettings& s = dqn_.s_;
  DqnShape h{.agents = dqn_.agents(),
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
  const SumTree tree(h.shards);
  if (const std::vector<int> nodes = tree.cover(first, first + count); nodes.size() == 1)  // else it sums nothing
    std::ranges::copy(tree.merges(nodes[0]), h.merges);
  return h;
}

DqnOffsets DqnOnGpu::offsets_in(const JobState& state) const {
  const std::string prefix = dqn_.agents() > 1 ? dqn_.agents_[0].name + "." : "";
  const auto place = [&](const std::string& name) {
    for (const ParameterEntry& entry : state.parameter_entries())
      if (entry.name == prefix + name) return entry.offset;
    throw std::logic_error("the net has no " + name);
  };
  return {place("hidden1.weight"),   place("hidden1.bias"),  place("norm1.weight"), place("norm1.bias"),
          place("hidden2.weight"),   place("hidden2.bias"),  place("norm2.weight"), place("norm2.bias"),
          place("heads.weight"),     place("heads.bias"),    place("value.weight"), place("value.bias"),
          place("advantage.weight"), place("advantage.bias")};
}

DqnLaunch DqnOnGpu::make_launch(JobState& state, int first, int count) const {
  DqnLaunch made{shape_of(first, count), offsets_in(state), {}, {}};
  const DqnShape& h = made.shape;
  DqnWork& w = made.work;
  const auto floats = [&](int64_t n) { return static_cast<float*>(made.take(static_cast<size_t>(n) * sizeof(float))); };
  const auto ints = [&](int64_t n) {
    return static_cast<int32_t*>(made.take(static_cast<size_t>(n) * sizeof(int32_t)));
  };
  const int64_t all = h.agent_shards(), acting = all * h.environments, learning = all * h.shard_batch;
  const int64_t passing = std::max(acting, 3 * learning);
  w.observed = floats(acting * h.observation_size);
  w.rewards = floats(acting);
  w.actions = ints(acting);
  w.ends = ints(acting);
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
  w.agent_sums = floats(2 * h.agents);
  if (is_16bit(h.blocks.precision))
    w.packed = made.take(size_t{kPackedFragmentBytes} * static_cast<size_t>(h.agents) *
                         static_cast<size_t>(PackedNetLayout(h).per_agent));
  w.outputs = static_cast<StepOutputs*>(made.take(sizeof(StepOutputs) * static_cast<size_t>(h.agents)));
  fill_tables(made, state);
  return made;
}

// Where the agents, their shards and their environments lie.
void DqnOnGpu::fill_tables(DqnLaunch& made, JobState& state) const {
  const DqnShape& h = made.shape;
  DqnWork& w = made.work;
  const int agents = h.agents, first = h.first_shard, count = h.local_shards;
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
    void* const there = made.take(rows.size() * sizeof(rows[0]));
    device().from_host(there, rows.data(), rows.size() * sizeof(rows[0]));
    return there;
  };
  w.agents = static_cast<const GpuDqnAgent*>(table(agent_table));
  w.shards = static_cast<const DqnShard*>(table(shard_table));
  w.environments = static_cast<const ShardEnvironments*>(table(environment_table));
}

StepParams DqnOnGpu::params(uint64_t seed, int64_t step, double loss_scale) const {
  return {{.seed = seed, .step = static_cast<uint64_t>(step)},
          dqn_.epsilon(step),
          dqn_.beta(step),
          static_cast<float>(loss_scale)};
}

StepParams DqnOnGpu::params(const ShardContext& context) const {
  return params(context.random(0).seed, context.step, context.loss_scale());
}

// ---- phase by phase ----

DqnRange& DqnOnGpu::range(JobState& state, int first, int count) {
  if (version_ != state.version()) ranges_.clear();
  version_ = state.version();
  const auto found = ranges_.find({first, count});
  if (found != ranges_.end()) return found->second;
  return ranges_.try_emplace({first, count}, make_launch(state, first, count), k_, advance_, replicated_).first->second;
}

void DqnOnGpu::run_batched(DqnPhase phase, std::span<ShardContext> shards, std::span<const Subtree> sums) {
  const StepParams now = params(shards[0]);
  const auto range_of = [&](std::span<ShardContext> some) -> DqnRange& {
    return range(some[0].job(), some[0].shard, static_cast<int>(some.size()));
  };
  const auto tell_refusal = [&](DqnRange& range) {
    if (const std::string refused = range.take_refusal(); !refused.empty())
      dqn_.note_ = fmt::format("phases run eagerly, not as CUDA graphs: {}", refused);
  };
  if (phase == kLearnPhase) {
    for (const Subtree& sum : sums) {
      const std::span<ShardContext> some =
          shards.subspan(static_cast<size_t>(sum.first), static_cast<size_t>(sum.last - sum.first));
      range_of(some).learn(now, some, sum.gradient, sum.tail.data());
      tell_refusal(range_of(some));
    }
    return;
  }
  DqnRange& all = range_of(shards);
  phase == kActPhase ? all.act(now, shards) : all.serve(now, shards);
  tell_refusal(all);
}

void DqnOnGpu::run(DqnPhase phase, ShardContext& context) {
  if (phase == kLearnPhase) return learn(range(context.job(), context.shard, 1).launch(), context);
  run_batched(phase, {&context, 1}, {});
}

std::vector<at::Tensor> DqnOnGpu::inputs(const ShardContext& context, const at::Tensor& states,
                                         const at::Tensor& reward, const at::Tensor& discount, const at::Tensor& action,
                                         const at::Tensor& priority) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(sizeof(StepParams))}, at::kByte);
  const StepParams now = params(context);
  std::memcpy(bytes.data_ptr(), &now, sizeof(now));
  return {states, reward, discount, action.to(at::kInt), priority, bytes};
}

void DqnOnGpu::learn(const DqnLaunch& launch, ShardContext& context) {
  const std::vector<at::Tensor>& in = context.inputs();
  DqnWork work = launch.work;
  work.states = in[0].data_ptr<float>();
  work.reward = in[1].data_ptr<float>();
  work.discount = in[2].data_ptr<float>();
  work.action = in[3].data_ptr<int32_t>();
  work.priority = in[4].data_ptr<int64_t>();
  work.params = static_cast<const StepParams*>(in[5].data_ptr());
  k_.learn(launch.shape, launch.offsets, work, context.gradient().data(), context.sums_on_gpu(),
           static_cast<CUstream_st*>(gpu()->current_stream()));
}

}  // namespace tandem
